"""A mistake as data, and the ways in which one changes a folder of results."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from shared.assignment import RECORDING_FILES

from ...rules.recordings import fold


@dataclass(frozen=True)
class Mistake:
    """One mistake.  `make` changes the files in a folder as a student who makes it would."""

    name: str
    experiment: str
    found_by: str  # the rule that has to find it; "files" where a file cannot be read at all
    title: str  # what the student did
    make: Callable[[Path], None]


MISTAKES: list[Mistake] = []


def mistake(experiment: str, found_by: str) -> Callable:
    """Registers a function of a folder as a mistake in an experiment ("E2")."""

    def declare(make: Callable[[Path], None]) -> Callable:
        title = " ".join(make.__doc__.split())
        MISTAKES.append(Mistake(make.__name__, experiment, found_by, title, make))
        return make

    return declare


@contextlib.contextmanager
def edited(folder: Path, file: str) -> Iterator[pd.DataFrame]:
    """The table in a file, as a data frame to change in place; it is written back at the end."""
    frame = pd.read_csv(folder / file)
    yield frame
    frame.to_csv(folder / file, index=False)


def keep(folder: Path, file: str, chosen: Callable[[pd.DataFrame], pd.Series]) -> None:
    """Leave the rows of a file that `chosen` says, and no others."""
    frame = pd.read_csv(folder / file)
    frame[chosen(frame)].to_csv(folder / file, index=False)


def swapped(frame: pd.DataFrame, one: str, other: str) -> None:
    """The values of two columns change places."""
    frame[one], frame[other] = frame[other].copy(), frame[one].copy()


def recording_files(recording: str) -> list[str]:
    """The CSV files of a recording and their sidecars."""
    files = [form.format(recording) for form in RECORDING_FILES]
    return files + [f"{file}.json" for file in files]


def record_instead(folder: Path, recording: str, taken: str) -> None:
    """What stands under the name of one recording is another one."""
    pairs = zip(recording_files(recording), recording_files(taken), strict=True)
    for file, other in pairs:
        shutil.copy(folder / other, folder / file)


def summarized_again(folder: Path, recording: str) -> None:
    """The table of ranges anew from the trace, as a1/ranges.py adds it up; `(backward)` is kept."""
    trace = pd.read_csv(folder / f"{recording}_nvtx_gpu_proj_trace.csv")
    names = trace["Name"].str.removeprefix(":").map(fold)
    steps = (names == "step").sum()
    groups = trace.groupby(names)
    with edited(folder, f"{recording}_ranges.csv") as ranges:
        for column, sums in (
            ("gpu_ms_per_step", groups["Projected Duration (ns)"].sum() / 1e6),
            ("gpu_ops", groups["NumGPUOps"].sum()),
            ("instances", groups.size()),
        ):
            there = ranges["range"].isin(sums.index)
            ranges.loc[there, column] = ranges["range"][there].map(sums / steps)
        gone = ~ranges["range"].isin([*names, "(backward)"])
        ranges.drop(ranges.index[gone], inplace=True)


def ran_on(folder: Path, file: str, gpu: str) -> None:
    """The sidecar of a file says that another GPU made it."""
    path = folder / f"{file}.json"
    note = json.loads(path.read_text())
    for run in note["runs"]:
        run["gpu"] = gpu
    path.write_text(json.dumps(note))
