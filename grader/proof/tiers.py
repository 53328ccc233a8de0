"""Do the tiers agree? Compares two verdict files of `python -m grader.proof --json`.

python -m grader.proof --only C7 --tier cuda --json cuda.json
python -m grader.proof.tiers virtual.json cuda.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def differences(one: dict, other: dict) -> tuple[int, list[str]]:
    """How many verdicts both files hold, and those that differ, in words."""
    compared, found = 0, []
    for name in sorted(one.keys() & other.keys()):
        for suite, verdicts in one[name]["passed"].items():
            theirs = other[name]["passed"].get(suite, {})
            for test in sorted(verdicts.keys() & theirs.keys()):
                compared += 1
                if verdicts[test] != theirs[test]:
                    said = other[name]["messages"].get(test) or one[name]["messages"].get(test, "")
                    passed, failed = ("first", "second") if verdicts[test] else ("second", "first")
                    found.append(
                        f"{name}, {suite}/{test}: passed in the {passed}, failed in the {failed}"
                        f"{': ' + said.splitlines()[0] if said else ''}"
                    )
    return compared, found


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    one, other = (json.loads(Path(p).read_text(encoding="utf-8")) for p in sys.argv[1:])
    compared, found = differences(one, other)
    for line in found:
        print(line)
    alone = sorted(one.keys() ^ other.keys())
    print(
        f"{len(one.keys() & other.keys())} hand-ins, {compared} verdicts compared: "
        f"{compared - len(found)} agree, {len(found)} differ"
        + (f"; only in one file: {', '.join(alone)}" if alone else "")
    )
    return 1 if found or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
