"""Makes the truth tables of Coding 9 from the occasions on which the steps were measured.

    python staff/truth/make_tables.py staff/truth/nvidia-h200     [--check]

Reads FOLDER/occasions/*.jsonl (see measure.py), writes FOLDER/a1_truth.csv, the public table, and
FOLDER/a1_truth_hidden.csv; no GPU is needed. The sidecars *.csv.json name machines, software, code
and dates. The course's GPU's public table is also what a wrong solution has pasted in
(grader/proof/wrong/c9_nearest_neighbour.py): it is pasted anew. `--check` writes nothing and fails
when the tables are not what the occasions give.

step_ms         median over the occasions of what an occasion saw: the median of the ten steps that
                are timed as a1/sweep.py times them (`plain_ms`)
step_ms_spread  largest over smallest of the occasions, less 1; empty after a single occasion
peak_gib        the largest of the occasions; they agree to the byte
graded_on_time  yes, if measured on two occasions or more and the spread is at most SPREAD_LIMIT
queued_ms       the GPU's own time, every launch hidden: less than step_ms where steps wait for
                the host
waits_for_host  yes, if that is so by more than HOST_SHARE
"""

import argparse
import csv
import io
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path

from shared.gpus import COURSE_GPU
from shared.gpus import gpu as data_sheet
from staff.truth.configurations import HIDDEN, PUBLIC, Configuration

FULL_CREDIT = 0.15  # the error that earns all points
SPREAD_LIMIT = FULL_CREDIT / 3
HOST_SHARE = 0.03
PASTED = Path(__file__).parents[2] / "grader" / "proof" / "wrong" / "c9_nearest_neighbour.py"
TABLES = {"a1_truth.csv": PUBLIC, "a1_truth_hidden.csv": HIDDEN}
COLUMNS = (
    *Configuration._fields,
    "step_ms",
    "step_ms_spread",
    "peak_gib",
    "graded_on_time",
    "queued_ms",
    "waits_for_host",
    "clock_mhz",
    "power_w",
    "occasions",
    "gpu",
)
OF_A_RUN = ("occasion", "date", "started", "gpu", "gpu_uuid", "driver", "torch", "cuda", "code")


class Occasions:
    """All that was measured: the runs, and for each step what every occasion saw of it."""

    def __init__(self, folder: Path) -> None:
        self.runs: list[dict] = []
        self.seen: dict[Configuration, dict[str, dict]] = defaultdict(dict)
        for path in sorted(folder.glob("*.jsonl")):
            for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
                if "started" in line:
                    self.runs.append(line)
                elif "layers" in line:
                    step = Configuration(*(line[name] for name in Configuration._fields))
                    self.seen[step][path.stem] = line

    @property
    def gpu(self) -> str:
        names = {run["gpu"] for run in self.runs}
        if len(names) != 1:
            raise SystemExit(f"these occasions are of several GPUs, or of none: {sorted(names)}")
        return names.pop()


def occasion_ms(line: dict) -> float:
    """The time of a step on one occasion, as a1/sweep.py would have it."""
    return statistics.median(line["plain_ms"])


def spread(times_ms: list[float]) -> float | None:
    """Largest over smallest, less 1; None for a single one."""
    return max(times_ms) / min(times_ms) - 1 if len(times_ms) > 1 else None


def row(step: Configuration, lines: list[dict], gpu: str) -> dict:
    """A row of a table, from what each occasion saw."""
    about = {**step._asdict(), "recompute": _flag(step.recompute)}
    measured = [line for line in lines if line["status"] == "ok"]
    about |= {"occasions": len(lines), "gpu": gpu}
    if not measured or len(measured) < len(lines):
        # A step that fits on one occasion only has no peak that a prediction could be held to.
        return {**about, "step_ms": lines[0]["status"], "peak_gib": lines[0]["status"]} | {
            "graded_on_time": "no"
        }
    times_ms = [occasion_ms(line) for line in measured]
    apart = spread(times_ms)
    step_ms = statistics.median(times_ms)
    queued_ms = statistics.median([statistics.median(line["queued_ms"]) for line in measured])
    clock, power = (_mean([line[name] for line in measured]) for name in ("clock_mhz", "power_w"))
    return about | {
        "step_ms": f"{step_ms:.5g}",
        "step_ms_spread": "" if apart is None else f"{apart:.4f}",
        "peak_gib": f"{max(line['peak_bytes'] for line in measured) / 2**30:.4f}",
        "graded_on_time": _flag(apart is not None and apart <= SPREAD_LIMIT),
        "queued_ms": f"{queued_ms:.5g}",
        "waits_for_host": _flag(step_ms > (1 + HOST_SHARE) * queued_ms),
        "clock_mhz": clock,
        "power_w": power,
    }


def tables(folder: Path) -> dict[str, str]:
    """The text of each file that belongs into a GPU's folder."""
    occasions = Occasions(folder / "occasions")
    if data_sheet(occasions.gpu).slug != folder.resolve().name:
        raise SystemExit(f"{folder} is not the folder of an {occasions.gpu}")
    files = {}
    for name, listed in TABLES.items():
        steps = [step for step in listed if step in occasions.seen]  # others not yet
        rows = [row(s, list(occasions.seen[s].values()), occasions.gpu) for s in steps]
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        files[name] = text.getvalue()
        runs = [{key: run.get(key) for key in OF_A_RUN} for run in occasions.runs]
        sidecar = {"format": 1, "artifact": name, "runs": runs}
        files[f"{name}.json"] = json.dumps(sidecar, indent=1) + "\n"
    return files


def paste(public: str, solution: Path = PASTED) -> None:
    """Put the public table into the wrong solution that returns its nearest row."""
    measured = [
        [
            *(int(r[name]) for name in ("layers", "micro_batch_size", "seqlen")),
            r["recompute"] == "yes",
            float(r["step_ms"]),
            float(r["peak_gib"]),
        ]
        for r in csv.DictReader(io.StringIO(public))
        if r["occasions"] and r["peak_gib"][0].isdigit()
    ]
    rows = "".join(f"    {row},\n" for row in measured)
    source = solution.read_text(encoding="utf-8")
    before, _, after = source.partition("MEASURED = [")
    _, _, after = after.partition("]\n\n\n")
    solution.write_text(f"{before}MEASURED = [\n{rows}]\n\n\n{after}", encoding="utf-8")


def _flag(value: bool) -> str:
    return "yes" if value else "no"


def _mean(values: list[float | None]) -> str:
    known = [v for v in values if v is not None]
    return f"{statistics.mean(known):.0f}" if known else ""


def summary(folder: Path, files: dict[str, str]) -> str:
    """How many steps are graded on what, and how far occasions were apart."""
    lines = []
    for name, listed in TABLES.items():
        rows = list(csv.DictReader(io.StringIO(files[name])))
        on_time = [r for r in rows if r["graded_on_time"] == "yes"]
        spreads = sorted(float(r["step_ms_spread"]) for r in rows if r["step_ms_spread"])
        apart = (
            f"; spread {statistics.median(spreads):.1%} in the median, {spreads[-1]:.1%} at worst"
            if spreads
            else ""
        )
        lines.append(
            f"{folder.name}/{name}: {len(rows)} of {len(listed)} steps, {len(on_time)} of them "
            f"graded on time{apart}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="of a GPU, as staff/truth/nvidia-h200")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    args = parser.parse_args()
    files = tables(args.folder)
    if args.check:
        stale = [n for n, t in files.items() if not _is(args.folder / n, t)]
        sys.exit(f"not what the occasions give: {', '.join(stale)}" if stale else 0)
    for name, text in files.items():
        (args.folder / name).write_text(text, encoding="utf-8")
    if args.folder.name == COURSE_GPU.slug:
        paste(files["a1_truth.csv"])
    print(summary(args.folder, files))


def _is(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    main()
