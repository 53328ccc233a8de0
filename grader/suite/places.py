"""Where things lie, in the repository and in the released course repository alike."""

from __future__ import annotations

from pathlib import Path

from shared.assignment import assignment

GRADER = Path(__file__).resolve().parents[1]  # grader/ here, grade/ in the release
ROOT = GRADER.parent
IN_RELEASE = (GRADER / "released").is_dir()  # a release carries its stubs a second time, unedited


def released_folder() -> Path:
    """The five files as they were released, whatever has been done to the working copies."""
    return GRADER / "released" if IN_RELEASE else ROOT / "student"


def given_folders() -> list[Path]:
    """Where the files that nobody edits are found, in the order of the overlay."""
    return [ROOT] if IN_RELEASE else [ROOT / "student", ROOT]


def folders_of(who: str) -> list[Path]:
    """The folder of the five files called `who`: "student", "staff", or a path.

    Raises FileNotFoundError for a path that is not a folder.
    """
    if who in ("student", "staff"):
        if IN_RELEASE:
            if who == "staff":
                raise FileNotFoundError("WHO=staff: the release holds no staff solution")
            return [ROOT]
        return [ROOT / "staff", ROOT / "student"] if who == "staff" else [ROOT / "student"]
    folder = Path(who).resolve()
    if not folder.is_dir():
        raise FileNotFoundError(f"WHO={who}: no such folder; give student, staff or a folder")
    return [folder]


def results_of(who: str) -> Path:
    """The folder of the experiments' files that belong to the code called `who`."""
    own = {"student": ROOT, "staff": ROOT / "staff"}.get(who, Path(who).resolve())
    return own / assignment().handin.results
