"""What has been handed in: when it was received, and which one counts.

    python -m shared.received COURSE_DIR/handin/a1 [--deadline 2027-03-13T04:59:00+00:00]

The name of an archive is the time at which it was received, in UTC. Needs nothing but Python 3.9.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tarfile
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

NAME = re.compile(r"(\d{8}-\d{6})\.tar\.gz")
UTC = timezone.utc  # noqa: UP017 (Python 3.9)


@dataclass(frozen=True)
class Received:
    """One archive."""

    path: Path
    at: datetime  # aware
    bytes: int
    files: int  # in its manifest; -1 if it cannot be read

    def __str__(self) -> str:
        at = self.at.astimezone().strftime("%a %Y-%m-%d %H:%M:%S %Z")
        what = f"{self.files:>4} files" if self.files >= 0 else "UNREADABLE"
        return f"{at}  {what}  {self.bytes / 1e6:6.1f} MB  {self.path.name}"


def received(folder: Path) -> list[Received]:
    """The archives in `folder`, the earliest first. Raises OSError."""
    found = []
    for path in sorted(folder.iterdir()):
        match = NAME.fullmatch(path.name)
        if match and path.is_file():
            at = datetime.strptime(match[1], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
            found.append(Received(path, at, path.stat().st_size, _files_in(path)))
    return found


def counts(found: list[Received], deadline: datetime | None) -> Received | None:
    """The one that is graded: the last before the deadline."""
    in_time = [one for one in found if deadline is None or one.at <= deadline]
    return in_time[-1] if in_time else None


def report(found: list[Received], deadline: datetime | None) -> str:
    """A line for each, and which one counts."""
    chosen = counts(found, deadline)
    lines = [f"{one}{'   <- counts' if one is chosen else ''}" for one in found]
    if deadline:
        due = deadline.astimezone().strftime("%a %Y-%m-%d %H:%M %Z")
        lines.append(f"The last one before {due} counts.")
    else:
        lines.append("The last one before the deadline counts.")
    if chosen is None:
        lines.append("None of these was received in time: talk to the course staff.")
    elif chosen.files < 0:
        lines.append("The one that counts cannot be read: run `make handin` again.")
    return "\n".join(lines)


def _files_in(path: Path) -> int:
    try:
        with tarfile.open(path, "r:gz") as archive:
            for entry in archive:
                if entry.name == "manifest.json":
                    return len(json.load(archive.extractfile(entry))["files"])
    except (OSError, EOFError, tarfile.TarError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return -1


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--deadline", default="", help="with its offset from UTC; none: not known")
    options = parser.parse_args(argv)
    deadline = datetime.fromisoformat(options.deadline) if options.deadline else None
    if deadline and deadline.tzinfo is None:
        parser.error("--deadline needs its offset from UTC")
    try:
        found = received(options.folder)
    except FileNotFoundError:
        found = []
    except OSError as error:
        print(f"{options.folder} cannot be read ({error.strerror})", file=sys.stderr)
        return 1
    if not found:
        print(f"Nothing has been received in {options.folder}: `make handin` hands in.")
        return 1
    print(f"Received in {options.folder}:")
    print(report(found, deadline))
    return 0


if __name__ == "__main__":
    sys.exit(main())
