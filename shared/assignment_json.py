"""Writes `assignment.json`: what handing in needs to know of the assignment's table.

`handin.py` runs on a login node whose Python may be too old to read TOML and knows nothing of this
package, so the facts it needs stand in a generated file, with nothing left to derive.

    python -m shared.assignment_json        writes it anew
"""

from __future__ import annotations

import json
from pathlib import Path

from .assignment import TABLE, Assignment, assignment

FILE = TABLE.with_suffix(".json")


def facts(table: Assignment) -> dict:
    """The table as far as handing in is concerned."""
    rules = table.handin
    return {
        "generated": f"from {TABLE.name} by {Path(__file__).name}; do not edit",
        "name": table.name,
        "course": table.course,
        "release": table.release,
        "files": list(table.files),
        "results": rules.results,
        "results_suffixes": list(rules.results_suffixes),
        "challenges": rules.challenges,
        "challenges_suffixes": list(rules.challenges_suffixes),
        "max_entries": rules.max_entries,
        "max_source_bytes": rules.max_source_bytes,
        "max_artifact_bytes": rules.max_artifact_bytes,
        "max_total_bytes": rules.max_total_bytes,
        "exercises": [
            {
                "kind": exercise.kind,
                "number": exercise.number,
                "name": exercise.name,
                "file": exercise.file,
                "implements": list(exercise.implements),
                "command": exercise.command,
                "artifacts": list(exercise.files),
            }
            for exercise in table.exercises
        ],
    }


def text(table: Assignment) -> str:
    """The whole content of the file."""
    return json.dumps(facts(table), indent=1) + "\n"


def write(path: Path = FILE) -> None:
    path.write_text(text(assignment()), encoding="utf-8")


if __name__ == "__main__":
    write()
