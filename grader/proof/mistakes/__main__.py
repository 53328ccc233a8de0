"""Prints which rules for points find which mistake, and what they find in the honest sets.

Exit status 1 when a mistake is not found by its rule, or an honest set would lose a point.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from ...rules.rule import all_rules
from .mistake import MISTAKES
from .tally import EXPERIMENTS, has_tables, honest_findings, make_all


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m grader.proof.mistakes", description=__doc__)
    parser.add_argument("sets", nargs="+", type=Path, help="folders of honest results")
    parser.add_argument("--messages", action="store_true", help="show what is said of each mistake")
    options = parser.parse_args()

    found = make_all(options.sets)
    print(f"{'mistake':<36}{'':<4}{'flagged':>9}  rules")
    missed = 0
    for mistake in MISTAKES:
        mine = [f for f in found if f.mistake is mistake]
        caught = sum(f.caught for f in mine)
        missed += len(mine) - caught
        rules = dict.fromkeys(rule for f in mine for rule in f.messages)
        print(f"{mistake.name:<36}{mistake.experiment:<4}{caught:>4}/{len(mine):<4}  "
              f"{', '.join(rules)}")  # fmt: skip
        if options.messages and mine:
            for rule in rules:
                for message in mine[0].messages.get(rule, [])[:1]:
                    print(f"      {rule}: {message}")

    honest: Counter[str] = Counter()
    judged = 0
    for folder in options.sets:
        for key in EXPERIMENTS:
            if has_tables(key, folder):
                judged += 1
                said = honest_findings(folder, key)
                honest.update(said)
                for rule, messages in said.items():
                    print(f"HONEST {folder.name} {key} {rule}: {messages[0]}")
    print(f"\n{'rule':<36}{'mistakes':>12}{'honest':>12}")
    for name in ["files", *(one.name for one in all_rules())]:
        flagged = sum(name in f.messages for f in found)
        print(f"{name:<36}{f'{flagged}/{len(found)}':>12}{f'{honest[name]}/{judged}':>12}")
    print(f"\n{len(found) - missed} of {len(found)} mistakes found by the rule that has to")
    return int(bool(missed or honest))


if __name__ == "__main__":
    raise SystemExit(main())
