"""How good the staff's predictor is, and how well truth repeats: Markdown for docs/measurements.md.

    PYTHONPATH=staff:student:. python staff/fit/error_tables.py

Judges, and changes nothing: the constants come from fit_predictor.py, which reads no truth table.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable

from a1 import perfmodel
from a1.other_gpu import keeps_more_bytes, predict_peak_gib_on, predict_step_ms_on
from grader.truth import MEMORY, TIME, Quantity, Step, graded, read_truth, truth_path
from olmoe.config import OlmoeConfig
from shared.gpus import COURSE_GPU, gpu
from staff.truth.make_tables import Occasions, occasion_ms, spread

L40 = "NVIDIA L40"
REGIMES = ((1024, "up to 1024"), (4096, "1025 to 4096"), (16384, "more than 4096"))


def _call(step: Step) -> tuple:
    layers, *rest = step.arguments
    return OlmoeConfig(n_layers=layers), *rest


def _percent(values: Iterable[float]) -> str:
    sizes = [abs(v) for v in values]
    return f"{statistics.median(sizes):.1%} | {max(sizes):.1%}" if sizes else "- | -"


def error(step: Step, quantity: Quantity, predict: Callable) -> float:
    """Relative, signed."""
    return predict(*_call(step)) / getattr(step, quantity.column) - 1


def predictor_table() -> str:
    """Median and worst error of the course's GPU's steps, and the worst step of each kind."""
    lines = ["| steps | of | median | worst | where | counted |", "| --- " * 6 + "|"]
    for hidden, name in ((False, "public"), (True, "hidden")):
        steps = read_truth(truth_path(hidden))
        for quantity in (TIME, MEMORY):
            predict = getattr(perfmodel, quantity.function)
            some = graded(steps, quantity)
            errors = {step: error(step, quantity, predict) for step in some}
            worst = max(errors, key=lambda step: abs(errors[step]), default=None)
            where = f"{worst}: {errors[worst]:+.1%}" if worst else ""
            sizes = _percent(errors.values())
            lines.append(f"| {name} | {quantity.what} | {sizes} | {where} | {len(some)} |")
    return "\n".join(lines)


def regimes_table() -> str:
    """Time errors by the number of tokens of a step, graded or not."""
    lines = ["| tokens of a step | median error | worst | steps | graded |", "| --- " * 5 + "|"]
    steps = [s for hidden in (False, True) for s in read_truth(truth_path(hidden))]
    for name, some in _by_regime(
        (s for s in steps if s.step_ms), lambda s: s.micro_batch_size * s.seqlen
    ).items():
        errors = [error(s, TIME, perfmodel.predict_step_ms) for s in some]
        on_time = sum(s.graded_on_time for s in some)
        lines.append(f"| {name} | {_percent(errors)} | {len(some)} | {on_time} |")
    return "\n".join(lines)


def occasions_table() -> str:
    """How far the occasions are apart, by regime, in the three ways of timing a step."""
    seen = Occasions(truth_path(False).parent / "occasions").seen
    ways = {
        "as the sweep": occasion_ms,
        "fastest group": lambda line: min(line["group_ms"]),
        "queued": lambda line: statistics.median(line["queued_ms"]),
    }
    lines = [
        "| tokens of a step | timed | median spread | worst | steps |",
        "| --- " * 5 + "|",
    ]
    for regime, steps in _by_regime(seen, lambda s: s.tokens).items():
        for name, way in ways.items():
            spreads = [
                spread([way(line) for line in seen[s].values() if line["status"] == "ok"] or [0])
                for s in steps
            ]
            known = [x for x in spreads if x is not None]
            lines.append(f"| {regime} | {name} | {_percent(known)} | {len(known)} |")
    return "\n".join(lines)


def other_gpu_table() -> str:
    """The L40's published steps, from the H200's terms and the L40's Part 1."""
    lines = [
        f"| step on an {L40} | published | predicted | error | GiB | predicted | error |",
        "| --- " * 7 + "|",
    ]
    for step in read_truth(truth_path(False, gpu(L40)), gpu(L40)):
        cfg, size, seqlen, recompute = _call(step)
        step_ms = predict_step_ms_on(L40, cfg, size, seqlen, recompute)
        peak_gib = predict_peak_gib_on(L40, cfg, size, seqlen, recompute)
        if not recompute:
            peak_gib += keeps_more_bytes(cfg, size * seqlen) / 2**30
        known = (
            step.step_ms
            and f"{step.step_ms} ms | {step_ms:.1f} ms | {step_ms / step.step_ms - 1:+.1%}"
        )
        time = known or f"- | {step_ms:.1f} ms | -"
        off = peak_gib / step.peak_gib - 1
        lines.append(f"| {step} | {time} | {step.peak_gib} | {peak_gib:.2f} | {off:+.1%} |")
    return "\n".join(lines)


def _by_regime(items: Iterable, tokens_of: Callable) -> dict[str, list]:
    found = defaultdict(list)
    for item in items:
        found[next(name for most, name in REGIMES if tokens_of(item) <= most)].append(item)
    return {name: found[name] for _, name in REGIMES if found[name]}


def main() -> None:
    print(f"Truth: {COURSE_GPU.name}\n")
    for table in (predictor_table, regimes_table, occasions_table, other_gpu_table):
        print(f"{table.__doc__.splitlines()[0]}\n\n{table()}\n")


if __name__ == "__main__":
    main()
