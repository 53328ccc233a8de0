"""Measured training steps of the course's GPU, and how far predictions are from them.

The tables are made by `make truth` (columns below). In the repository they lie in
staff/truth/<slug of the GPU>/, a1_truth.csv for the public tests and a1_truth_hidden.csv for the
hidden ones; in a release the public one alone lies beside the tests, as a1_truth.csv.

columns: layers, micro_batch_size, seqlen, recompute (yes or no), step_ms, step_ms_spread,
peak_gib, graded_on_time (yes or no); others are not read here. A step that does not fit into the
GPU's memory has no step_ms and no peak_gib, and nothing is graded on it. A step that does not
repeat well enough is not graded on time.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from shared.gpus import COURSE_GPU, Gpu

from .exact import BEYOND, kind_of
from .suite.places import GRADER, IN_RELEASE, ROOT

HIDDEN_STEPS = 32  # that a term's secret picks from the pool of hidden ones
NEEDED_SHARE = 4 / 5  # of the configurations must be within the limit
COLUMNS = ("layers", "micro_batch_size", "seqlen", "recompute", "step_ms", "peak_gib")
FLAGS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


class NoTruthError(Exception):
    """There is no table for this GPU, or it cannot be used; the message says what to do."""


@dataclass(frozen=True)
class Step:
    """A configuration of a training step, and what was measured of it."""

    layers: int
    micro_batch_size: int
    seqlen: int
    recompute: bool
    step_ms: float | None  # None: does not fit into memory
    peak_gib: float | None
    graded_on_time: bool

    @property
    def arguments(self) -> list:
        """What a prediction is called with; the first stands for a config of so many layers."""
        return [self.layers, self.micro_batch_size, self.seqlen, self.recompute]

    def __str__(self) -> str:
        layers = f"{self.layers} layer{'s' if self.layers > 1 else ''}"
        recompute = ", recomputed" if self.recompute else ""
        return f"{layers}, {self.micro_batch_size} x {self.seqlen}{recompute}"


@dataclass(frozen=True)
class Quantity:
    """One of the two things that are predicted."""

    function: str
    column: str
    what: str
    unit: str


TIME = Quantity("predict_step_ms", "step_ms", "time", "ms")
MEMORY = Quantity("predict_peak_gib", "peak_gib", "peak memory", "GiB")


def truth_path(hidden: bool, gpu: Gpu = COURSE_GPU) -> Path:
    """Where the table of a GPU lies; it need not exist."""
    if IN_RELEASE and not hidden:
        return GRADER / "a1_truth.csv"
    name = "a1_truth_hidden.csv" if hidden else "a1_truth.csv"
    return ROOT / "staff" / "truth" / gpu.slug / name


def read_truth(path: Path, gpu: Gpu = COURSE_GPU) -> list[Step]:
    """The measured steps of a table. Raises NoTruthError if there is none, or it is damaged."""
    if not path.is_file():
        raise NoTruthError(
            f"no truth table for this GPU ({gpu.name}) yet: the staff measure it with `make truth`"
        )
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        missing = [c for c in COLUMNS if c not in (rows.fieldnames or ())]
        if missing:
            raise NoTruthError(f"{path.name}: no column {', '.join(missing)}")
        steps = [_step(row, f"{path.name}, line {rows.line_num}") for row in rows]
    if not any(step.peak_gib is not None for step in steps):
        raise NoTruthError(f"{path.name}: no measured step in it")
    return steps


def picked(pool: Sequence[Step], secret: str, count: int = HIDDEN_STEPS) -> list[Step]:
    """The term's own choice of the measured steps of a pool, the same for all tests."""
    measured = [step for step in pool if step.peak_gib is not None]
    if len(measured) <= count:
        return measured
    return Random(f"{secret}/truth").sample(measured, count)


def graded(steps: Sequence[Step], quantity: Quantity) -> list[Step]:
    """The steps on which predictions of this quantity are graded."""
    on_time = quantity is TIME
    return [
        step
        for step in steps
        if getattr(step, quantity.column) is not None and (step.graded_on_time or not on_time)
    ]


@dataclass(frozen=True)
class Judged:
    """One prediction beside the truth."""

    step: Step
    truth: float
    predicted: float | None  # None: no usable number
    problem: str  # why it counts as wrong whatever it is; "" if nothing

    @property
    def error(self) -> float:
        """Relative, signed; infinite for what counts as wrong."""
        return math.inf if self.problem else self.predicted / self.truth - 1


def judge(predictions, steps: Sequence[Step], quantity: Quantity) -> list[Judged]:
    """Compares what the probe `perfmodel.predictions` saw with the truth, in the steps' order."""
    complete = type(predictions) is list and len(predictions) == len(steps)
    assert complete, "the probe's answer is incomplete"
    judged = []
    for seen, step in zip(predictions, steps, strict=True):
        value, problem = _usable(seen)
        judged.append(Judged(step, getattr(step, quantity.column), value, problem))
    return judged


def share_within(judged: Sequence[Judged], limit: float) -> float:
    """The share of the configurations whose relative error is at most `limit`."""
    return sum(abs(j.error) <= limit for j in judged) / len(judged)


def enough(judged: Sequence[Judged], limit: float) -> bool:
    """Whether at least four configurations in five are within the limit."""
    return share_within(judged, limit) >= NEEDED_SHARE - 1e-12


def explained(judged: Sequence[Judged], limit: float, quantity: Quantity, worst: int = 5) -> str:
    """The shares, what counts as wrong and why, and the worst configurations with directions."""
    lines = [shares(judged, limit, quantity)]
    problems = [j for j in judged if j.problem]
    for problem in dict.fromkeys(j.problem for j in problems):
        those = [j for j in problems if j.problem == problem]
        more = f" and {len(those) - 1} more" if len(those) > 1 else ""
        lines.append(f"counts as wrong, {those[0].step}{more}: {quantity.function} {problem}")
    measured = [j for j in judged if not j.problem]
    outside = [j for j in measured if abs(j.error) > limit]
    if outside:
        above = sum(j.error > 0 for j in outside)
        lines.append(f"outside: {above} too high, {len(outside) - above} too low. The worst:")
    for j in sorted(outside, key=lambda j: -abs(math.log(j.predicted / j.truth)))[:worst]:
        direction = "too high" if j.error > 0 else "too low"
        lines.append(
            f"  {j.step}: predicted {j.predicted:.4g} {quantity.unit}, measured {j.truth:.4g} "
            f"{quantity.unit} ({abs(j.error):.0%} {direction})"
        )
    return "\n".join(lines)


def shares(judged: Sequence[Judged], limit: float, quantity: Quantity) -> str:
    """How many configurations are within the limit: all that a hidden test says."""
    within = sum(abs(j.error) <= limit for j in judged)
    return (
        f"{quantity.what}: {within} of {len(judged)} configurations are within {limit:.0%} of the "
        f"measurement ({within / len(judged):.0%}; {NEEDED_SHARE:.0%} are needed)"
    )


def _usable(seen) -> tuple[float | None, str]:
    """The number in one answer of the probe, and what is wrong with it."""
    if type(seen) is not dict or seen.keys() != {"value", "raised", "offence"}:
        return None, "gave an answer that cannot be read"
    if seen["offence"]:
        return None, f"{seen['offence']}; a prediction is plain arithmetic"
    if seen["raised"]:
        return None, f"raised {seen['raised']}"
    problem = _no_prediction(seen["value"])
    return (None, problem) if problem else (float(seen["value"]), "")


def _no_prediction(value) -> str:
    """Why a value is no finite positive number; "" if it is one."""
    if type(value) not in (int, float):
        return f"returned {'None' if value is None else kind_of(value)}, which is not a number"
    if type(value) is int and abs(value) >= BEYOND:
        return "returned a number beyond all bounds"
    if not (math.isfinite(value) and value > 0):
        return f"returned {value:.4g}, which is not a finite positive number"
    return ""


def _step(row: dict[str, str], where: str) -> Step:
    try:
        return Step(
            layers=int(row["layers"]),
            micro_batch_size=int(row["micro_batch_size"]),
            seqlen=int(row["seqlen"]),
            recompute=FLAGS[row["recompute"].strip().lower()],
            step_ms=_measured(row["step_ms"]),
            peak_gib=_measured(row["peak_gib"]),
            graded_on_time=FLAGS[(row.get("graded_on_time") or "yes").strip().lower()],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoTruthError(f"{where}: cannot be read: {error}") from None


def _measured(text: str | None) -> float | None:
    """A positive number; None for a blank or words, such as "out of memory"."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{text!r} is not a measurement")
    return value
