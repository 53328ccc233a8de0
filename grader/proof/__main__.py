"""Prints what became of every wrong and right solution; ends with one line and an exit status."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from pathlib import Path

from tqdm import tqdm

from shared.assignment import assignment

from .corpus import cases, solution, stubs
from .prove import SUITES, Verdict, complaints, judge_job, misdiagnosed, open_bench


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m grader.proof", description=__doc__)
    parser.add_argument("--only", default="", help="exercises, for instance C1,C7")
    parser.add_argument("--names", default="", help="cases whose name contains this")
    parser.add_argument("--all-exercises", action="store_true", help="judge each on every one")
    parser.add_argument("--tier", default="virtual", choices=["virtual", "cuda"])
    parser.add_argument("--rung", default="", help="containment to begin with")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path, help="write every verdict here")
    options = parser.parse_args()

    corpus = cases(set(options.only.split(",")) if options.only else None)
    corpus = [c for c in corpus if options.names in c.name]
    judged = [e.key for e in assignment().of_kind("coding")]
    jobs = [(c.name, c.files(), [c.exercise]) for c in corpus]
    # First, since everything is compared with them.
    jobs = [("staff solution", solution(), judged), ("stubs", stubs(), judged), *jobs]
    everything = judged if options.all_exercises else None

    verdicts: dict[str, Verdict] = {}
    context = multiprocessing.get_context("spawn")
    with context.Pool(
        min(options.jobs, len(jobs)), open_bench, (options.tier, options.rung, everything)
    ) as pool:
        done = pool.imap_unordered(judge_job, jobs)
        for verdict in tqdm(done, total=len(jobs), unit="hand-in", disable=not sys.stderr.isatty()):
            verdicts[verdict.name] = verdict
            if options.json:  # each time: a run that is cut short leaves what it has
                _write(options.json, verdicts)
    return report(corpus, verdicts, everything is not None)


def _write(path: Path, verdicts: dict[str, Verdict]) -> None:
    path.write_text(json.dumps({n: vars(v) for n, v in sorted(verdicts.items())}))


def report(corpus, verdicts: dict[str, Verdict], all_exercises: bool) -> int:
    untouched = verdicts["staff solution"].points
    bad: dict[str, list[str]] = {}
    for case in corpus:
        found = complaints(case, verdicts[case.name], untouched)
        mark = "ok  " if not found else "BAD "
        print(f"{mark} {case.exercise} {case.name}: {case.title}")
        for line in found:
            print(f"       {line}")
        if found:
            bad[case.name] = found
    for line in misdiagnosed(corpus, verdicts):
        print(f"BAD  {line}")
        bad.setdefault(line.split()[0], []).append(line)
    for name in ("staff solution", "stubs"):
        points = {s: sum(verdicts[name].points[s].values()) for s in SUITES}
        faults = verdicts[name].faults
        print(f"{name}: " + ", ".join(f"{s} {p:g}" for s, p in points.items()), *faults)
    if any(sum(verdicts["stubs"].points[s].values()) for s in SUITES):
        bad["stubs"] = ["the stubs get points"]
    wrong, right = [c for c in corpus if c.wrong], [c for c in corpus if not c.wrong]

    def caught(suite: str) -> int:
        return sum(not any(suite in line for line in bad.get(c.name, [])) for c in wrong)

    disturbed = sum("disturbs" in line for lines in bad.values() for line in lines)
    print(
        f"wrong solutions caught: {caught('public')}/{len(wrong)} public, "
        f"{caught('hidden')}/{len(wrong)} hidden; "
        f"right solutions passed: {sum(c.name not in bad for c in right)}/{len(right)}; "
        f"other exercises disturbed: {disturbed if all_exercises else 'not judged'}; "
        f"complaints: {sum(map(len, bad.values()))}"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
