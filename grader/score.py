"""Scores hand-ins: `grader/score.py HANDIN.tar.gz [-o results.json]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # run as a script, Python puts grader/ there

EXIT_SCORED, EXIT_USAGE, EXIT_GRADER_FAULT = 0, 2, 3


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if not options.handin.exists():
        print(f"{options.handin}: no such file", file=sys.stderr)
        return EXIT_USAGE
    # Here, so that a usage error does not wait for torch.
    from grader.judge.one import Options, judge
    from grader.judge.tier import choose_tier
    from grader.suite.score_table import score_table
    from shared.assignment import assignment

    select = [f"--{kind}={value}" for kind, value in (("coding", options.coding),) if value]
    how = Options(
        choose_tier(options.tier),
        options.containment,
        tuple(select),
        options.hidden_tests_unshielded,
    )
    results = judge(options.handin, options.output, how)
    hidden = [t for t in results.tests if t.suite == "hidden"]
    print(score_table([t for t in results.tests if t not in hidden], assignment()))
    print(score_table(hidden, assignment(), " hidden "))
    print(f"{'In all':<14} {'':<5} {results.score:>5g}/{results.max_score:g}")
    for problem in results.problems:
        print(f"- {problem}")
    if results.grader_fault:
        print(f"GRADER FAULT (this is no grade):\n{results.grader_fault}", file=sys.stderr)
    if options.output:
        print(f"wrote {options.output}")
    return EXIT_GRADER_FAULT if results.grader_fault else EXIT_SCORED


def _parser() -> argparse.ArgumentParser:
    from grader.judge.contain import LADDER

    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"Exit status: {EXIT_SCORED} scored, whatever the score; {EXIT_USAGE} called "
        f"wrongly; {EXIT_GRADER_FAULT} a fault of the grader, which is no grade.",
    )
    parser.add_argument("handin", type=Path, help="what `make handin` wrote")
    parser.add_argument("-o", "--output", type=Path, help="where to write Gradescope's JSON")
    parser.add_argument(
        "--tier",
        default="auto",
        choices=["auto", "virtual", "cuda"],
        help="where timing tests run; auto: on a GPU if this machine has one",
    )
    parser.add_argument("--coding", default="", metavar="N", help="only these exercises: 3,7")
    parser.add_argument(
        "--containment",
        default="",
        choices=["", *(rung.name for rung in LADDER)],
        metavar="RUNG",
        help="begin at this rung, not the strongest: " + ", ".join(r.name for r in LADDER),
    )
    parser.add_argument(
        "--hidden-tests-unshielded",
        action="store_true",
        help="run hidden tests even where the hand-in could read them",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
