"""Somebody else's measurements."""

from __future__ import annotations

import shutil

import numpy as np

from shared.provenance import sidecar_path

from .forge import TIMES, Folder


def copied(folder: Folder, other: Folder) -> None:
    """All of another student's tables; names, times and machine of the sidecars changed."""
    _take(folder, other)
    folder.rename_runs()


def copied_and_stirred(folder: Folder, other: Folder) -> None:
    """The same, with 1% of noise on every time, and everything derived again."""
    _take(folder, other)
    folder.scale(lambda ms: np.exp(folder.draw.normal(0, 0.01, len(ms))))
    folder.rename_runs()


def copied_table(folder: Folder, other: Folder) -> None:
    """Only the sweep is another student's; it was the longest to measure."""
    _take(folder, other, ["sweep"])
    folder.rename_runs()


def spliced(folder: Folder, other: Folder) -> None:
    """The first half of every table is one's own, the second half another student's."""
    for name in TIMES:
        if folder.has(name) and other.has(name) and not name.startswith("stages"):
            mine, theirs = folder.frame(name), other.frame(name)
            half = len(mine) // 2
            columns = [c for c in mine.columns if c != "run"]
            mine.loc[mine.index[half:], columns] = theirs.loc[mine.index[half:], columns]
            folder.write(name, mine, derive=False)


def _take(folder: Folder, other: Folder, names: list[str] | None = None) -> None:
    for name in names or [*TIMES, "gemm_sustained"]:
        path = other.path / f"{name}.csv"
        for one in (path, sidecar_path(path)):
            if one.is_file():
                shutil.copyfile(one, folder.path / one.name)
