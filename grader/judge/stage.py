"""Lays out what the solver may see: the released files, and beside them the handed-in ones."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..suite.places import GRADER, ROOT

PUBLIC_PARTS = ("suite", "gpu", "probes")  # of the grader: what a probe needs; no suite is here
GIVEN = ("student/olmoe", "student/a1", "olmoe", "shared")


def _copy(source: Path, target: Path) -> None:
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc", "tests", ".*")
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=ignore)


def lay_out(folder: Path) -> None:
    """Writes `folder`/released: the flat release, as far as probes need it, and the solver."""
    released = folder / "released"
    for part in GIVEN:
        _copy(ROOT / part, released / part.removeprefix("student/"))
    for part in (*PUBLIC_PARTS, "solver"):
        _copy(GRADER / part, released / "grade" / part)
    (released / "grade" / "__init__.py").touch()
    for file in ("olmoe", "a1"):
        _copy(ROOT / "student" / file, released / "grade" / "released" / file)


def put_in(folder: Path, files: dict[str, bytes]) -> Path:
    """Writes handed-in files below `folder` and returns it."""
    for name, content in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return folder
