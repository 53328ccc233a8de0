"""Prints how many made-up and how many honest sets of results the rules for the staff note.

Exit status 1 when an honest set has more than one note, or fewer than nine fabrications in ten are
noted.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from ...rules.experiment import load
from ...staff_rules.report import notes
from ...staff_rules.sidecars import HONEST
from .tally import Tally, fabrications, tally_forged, tally_honest, timer_aware_fabrications

ENOUGH = 0.9  # of the fabrications


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m grader.proof.fabrications", description=__doc__
    )
    parser.add_argument("sets", nargs="*", type=Path, help="folders of honest results")
    parser.add_argument("--each", type=int, default=2, help="of every fabrication, per honest set")
    parser.add_argument("--drawn", type=int, default=20, help="honest sets drawn from each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lines", action="store_true", help="print every note")
    options = parser.parse_args()
    options.sets = options.sets or sorted(p for p in HONEST.iterdir() if p.is_dir())

    honest = [measured(options.sets)]
    forged: dict[str, Tally] = {}
    aware: dict[str, Tally] = {}
    for source in options.sets:
        for quiet in (False, True):
            honest.append(tally_honest(source, options.drawn, options.seed, quiet))
        for chosen, tallies in ((fabrications(), forged), (timer_aware_fabrications(), aware)):
            for tally in tally_forged(source, chosen, options.each, options.seed):
                merge(tallies.setdefault(tally.name, Tally(tally.name)), tally)
    show("honest sets", honest, options.lines)
    show("fabrications", list(forged.values()), options.lines)
    show("fabrications that keep the timer's tick", list(aware.values()), options.lines)

    noted, total = (sum(getattr(t, n) for t in forged.values()) for n in ("noted", "total"))
    worst = max(t.most for t in honest)
    print(f"\n{noted} of {total} fabrications noted; at most {worst} notes on an honest set")
    return int(noted < ENOUGH * total or honest[0].most > 1)


def measured(sets: list[Path]) -> Tally:
    """The honest sets themselves, each compared with the others."""
    tally = Tally("measured")
    for one in sets:
        others = {other.name: load(other) for other in sets if other != one}
        staff = next(iter(others.values()), None)
        tally.add(notes(load(one), others, staff))
    return tally


def merge(into: Tally, tally: Tally) -> None:
    into.total, into.noted = into.total + tally.total, into.noted + tally.noted
    into.most = max(into.most, tally.most)
    into.rules.update(tally.rules)
    into.lines += tally.lines


def show(title: str, tallies: list[Tally], lines: bool) -> None:
    rules: Counter = sum((t.rules for t in tallies), Counter())
    print(f"\n{title:<42}{'noted':>8}   by (sets)")
    for t in tallies:
        by = ", ".join(f"{rule} {n}" for rule, n in t.rules.most_common())
        print(f"  {t.name:<40}{t.noted:>4}/{t.total:<4}  {by}")
        for line in t.lines if lines else []:
            print(f"      {line}")
    print(f"  {'per rule':<40}{'':>9}  {', '.join(f'{r} {n}' for r, n in rules.most_common())}")


if __name__ == "__main__":
    sys.exit(main())
