"""Lays out what the solver may see: the released files, and beside them the handed-in ones."""

from __future__ import annotations

from pathlib import Path

from ..release import lay_out_for_probes


def lay_out(folder: Path) -> None:
    """Writes `folder`/released: the flat release, as far as probes need it, and the solver."""
    lay_out_for_probes(folder / "released")


def put_in(folder: Path, files: dict[str, bytes]) -> Path:
    """Writes handed-in files below `folder` and returns it."""
    for name, content in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return folder
