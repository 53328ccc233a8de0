"""What it takes to give the course another GPU, step by step: done, or what to do.

    python staff/tools/port.py "NVIDIA B200" [--run]

Looks at the repository and says which steps are done and which is next, with its command. `--run`
also runs the commands that need no person, on a machine with that GPU, from the first step that is
not done. Ends with what still needs a person.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from shared import artifacts, provenance
from shared.assignment import assignment
from shared.gpus import Gpu, UnknownGpuError
from shared.gpus import gpu as data_sheet

ROOT = Path(__file__).resolve().parents[2]
TABLES = ("a1_truth.csv", "a1_truth_hidden.csv")
OCCASIONS = 2
OVERLAY = "PYTHONPATH=staff:student:."
BY_A_PERSON = (
    "read the new truth's spreads and say in docs/measurements.md what does not repeat, and why",
    "fit the predictor (staff/fit/fit_predictor.py), paste its constants into "
    "staff/a1/perfmodel.py, and look at its worst steps in `make predict-plot WHO=staff`",
    "read the plausibility limits of the experiments once more: an honest set of the new GPU must "
    "pass all of E2 to E7, and the altered copies must fail",
    "change the figures in the handout and in docs/ that are this GPU's",
    "set the site's Slurm options, its Nsight Systems and its path to the checkpoint",
    "solve the written questions again with the new figures, and check the rubric against them",
)


@dataclass(frozen=True)
class Step:
    """One step of the move."""

    what: str
    done: Callable[[], bool]
    command: str  # for a shell in the repository's root; "" where only a person can do it
    hint: str = ""
    ends_a_visit: bool = False  # what follows needs another day


def steps(name: str, root: Path = ROOT) -> list[Step]:
    """All steps for the GPU of this name, in order."""
    sheet = _sheet(name)
    slug = sheet.slug if sheet else re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    truth = root / "staff" / "truth" / slug
    results = root / "staff" / "results" / "a1"

    def occasions() -> int:
        return len(list((truth / "occasions").glob("*.jsonl")))

    def measured(at_least: int) -> Callable[[], bool]:
        return lambda: occasions() >= at_least

    def measure(occasion: str) -> str:
        out = shlex.quote(str(Path("staff/truth") / slug / "occasions"))
        return f"{OVERLAY} python staff/truth/measure.py --occasion {occasion} --out {out}"

    return [
        Step(
            "data sheet in shared/gpus.toml",
            lambda: sheet is not None,
            "",
            "copy a block, fill it from the vendor's data sheet and the driver, with sources",
        ),
        *(
            Step(
                f"truth, occasion {i} of {OCCASIONS}",
                measured(i),
                measure(f"occasion{i}"),
                "on a machine with this GPU; another occasion is another day",
                ends_a_visit=True,
            )
            for i in range(1, OCCASIONS + 1)
        ),
        Step(
            "truth tables",
            lambda: all((truth / table).is_file() for table in TABLES),
            f"{OVERLAY} python staff/truth/make_tables.py staff/truth/{slug}",
        ),
        Step(
            "an honest set of the experiments in staff/results/a1",
            lambda: _measured_on(results, sheet),
            "",
            "run the experiments as the handout says, on this GPU, with the staff's solution; "
            "keep the old GPU's set elsewhere",
        ),
        Step(
            "the course's GPU in shared/assignment.toml",
            lambda: sheet is not None and data_sheet(assignment().gpu) == sheet,
            "",
            f'gpu = "{sheet.name if sheet else name}"',
        ),
        Step(
            "the predictor, fitted to the set",
            lambda: _named_in(root / "staff" / "a1" / "perfmodel.py", sheet),
            "",
            f"{OVERLAY} python staff/fit/fit_predictor.py, and paste what it prints",
        ),
    ]


def _sheet(name: str) -> Gpu | None:
    try:
        return data_sheet(name)
    except UnknownGpuError:
        return None


def _measured_on(results: Path, sheet: Gpu | None) -> bool:
    """Whether every sidecar of the staff's results names this GPU, and no other."""
    if sheet is None or not results.is_dir():
        return False
    names = set()
    for sidecar in results.glob("*.csv.json"):
        csv = sidecar.with_name(sidecar.name.removesuffix(".json"))
        names |= {run.get("gpu") for run in provenance.read_sidecar(csv)}
    return names == {sheet.name}


def _named_in(file: Path, sheet: Gpu | None) -> bool:
    """Whether the fitted constants carry this GPU's name: `H200 = Rates(`."""
    found = re.search(r"^(\w+) = Rates\(", file.read_text(encoding="utf-8"), re.M)
    short = {alias.split()[-1].upper() for alias in (sheet.aliases if sheet else ())}
    return bool(found) and found[1].upper() in short


def report(plan: list[Step]) -> str:
    """Every step, done or not, with the next one's command; then what needs a person."""
    lines, next_named = [], False
    for step in plan:
        done = step.done()
        lines.append(f"[{'x' if done else ' '}] {step.what}")
        if not done:
            how = step.command or step.hint
            lines.append(f"      {'next: ' if not next_named else ''}{how}")
            if step.command and step.hint:
                lines.append(f"      {step.hint}")
            next_named = True
    lines += ["", "Still needs a person, whatever is done above:"]
    lines += [f"  - {what}" for what in BY_A_PERSON]
    return "\n".join(lines)


def run(plan: list[Step], root: Path = ROOT) -> None:
    """Run what a machine can do, in order, up to the first step that it cannot."""
    for step in plan:
        if step.done():
            continue
        if not step.command:
            break
        print(f"$ {step.command}", flush=True)
        subprocess.run(step.command, shell=True, check=True, cwd=root)
        if step.ends_a_visit or not step.done():
            break


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("gpu", help="its name, as the driver reports it")
    parser.add_argument("--run", action="store_true", help="run what needs no person")
    args = parser.parse_args()
    plan = steps(args.gpu)
    try:
        if args.run:
            run(plan)
    except subprocess.CalledProcessError as failed:
        sys.exit(f"stopped: exit status {failed.returncode}")
    except artifacts.ArtifactError as wrong:
        sys.exit(str(wrong))
    print(report(plan))


if __name__ == "__main__":
    main()
