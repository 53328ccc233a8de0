"""A few cells of a hand-in measured again, on a GPU of the course's model.

    python -m grader.staff_rules.remeasure results/a1 [--cells 6] [--seed 1]

with staff:student:. on PYTHONPATH: the staff's model is measured, not the hand-in's.  A minute.
Cells are drawn among those that are large enough for two occasions to agree; launch-bound ones
measure the host's CPU and would prove nothing.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from typing import Protocol

from shared.artifacts import table
from shared.gpus import COURSE_GPU

from ..rules.experiment import Results, load
from .agreement import apart, may_differ
from .note import Note
from .reading import gpu_names, measured

LEAST_MS = 0.2  # of a GEMM or an operation: several launches long
LEAST_TOKENS = 4096  # of a step


class Measurer(Protocol):
    """Measures one cell, in ms, as the experiments' scripts do."""

    def gemm_ms(self, m: int, k: int, n: int) -> float: ...

    def op_ms(self, op: str, tensor_bytes: int) -> float: ...

    def step_ms(
        self, layers: int, micro_batch_size: int, seqlen: int, recompute: bool
    ) -> float: ...


def cells(results: Results, n: int, draw: random.Random) -> list[tuple[str, str, tuple, float]]:
    """(artifact, kind, arguments, ms) of `n` cells, from as many of the tables as there are."""
    pools = []
    for artifact, kind, columns, column in (
        ("gemm", "gemm_ms", ["m", "k", "n"], "ms"),
        ("ops", "op_ms", ["op", "tensor_bytes"], "ms"),
        (
            "sweep",
            "step_ms",
            ["layers", "micro_batch_size", "seqlen", "recompute"],
            "step_ms",
        ),
    ):
        frame = measured(results, artifact)
        if frame is None or gpu_names(results, artifact) != {COURSE_GPU.name}:
            continue
        if artifact == "sweep":
            frame = frame[frame["micro_batch_size"] * frame["seqlen"] > LEAST_TOKENS]
            frame = frame.assign(recompute=frame["recompute"] == "yes")
        else:
            frame = frame[frame["ms"] > LEAST_MS]
        rows = list(frame[[*columns, column]].itertuples(index=False, name=None))
        draw.shuffle(rows)
        if rows:
            pools.append([(artifact, kind, row[:-1], float(row[-1])) for row in rows])
    chosen = []
    while len(chosen) < n and any(pools):
        for pool in pools:
            if pool and len(chosen) < n:
                chosen.append(pool.pop())
    return chosen


def remeasure(results: Results, n: int, measurer: Measurer, seed: int) -> list[Note]:
    """Measure `n` random cells again; one note for every table with a cell too far off.

    Large steps of two occasions differ by 6% at worst, large GEMMs by less; 12% is noted.
    Out-of-memory on this machine passes a cell over.

    Honest cause: a GPU with another power limit, or shared, then or now.
    """
    far: dict[str, list[tuple[float, float]]] = {}
    chosen = cells(results, n, random.Random(seed))
    for artifact, kind, arguments, ms in chosen:
        try:
            again = getattr(measurer, kind)(*arguments)
        except MemoryError:
            continue
        if apart(ms, again) > may_differ(LEAST_TOKENS + 1):
            far.setdefault(artifact, []).append((ms, again))
    found = []
    for artifact, pairs in far.items():
        worst = max(pairs, key=lambda pair: apart(*pair))
        of = sum(cell[0] == artifact for cell in chosen)
        figures = {"cells": len(pairs), "of": of, "handed in ms": worst[0], "again ms": worst[1]}
        what = "measured again, times are others"
        found.append(Note("remeasure", table(artifact).file, what, figures))
    return found


class GpuMeasurer:
    """Measures on this machine's GPU, with the experiments' own code and the staff's model."""

    def __init__(self) -> None:
        from a1 import session

        session.need_gpu()
        if session.gpu_name() != COURSE_GPU.name:
            raise session.Stop(
                f"this is a {session.gpu_name()}, not the course's {COURSE_GPU.name}"
            )
        self.session = session

    def gemm_ms(self, m: int, k: int, n: int) -> float:
        a, b = self._random(m, k), self._random(k, n)
        return self._median(lambda: a @ b, warmup=5, repeats=30)

    def op_ms(self, op: str, tensor_bytes: int) -> float:
        from a1.bench_ops import OPS
        from olmoe.config import OlmoeConfig

        width = OlmoeConfig().d_model
        tensors = [self._random(tensor_bytes // (2 * width), width) for _ in range(3)]
        return self._median(lambda: OPS[op][1](*tensors), warmup=5, repeats=30)

    def step_ms(self, layers: int, micro_batch_size: int, seqlen: int, recompute: bool) -> float:
        from olmoe.train import make_optimizer, train_step

        model = self.session.random_model(layers)
        optimizer = make_optimizer(model)
        batch = self.session.micro_batch(model, micro_batch_size, seqlen)
        return self._median(lambda: train_step(model, optimizer, batch, recompute))

    def _random(self, *shape: int):
        import torch

        return torch.randn(*shape, device=self.session.DEVICE, dtype=torch.bfloat16)

    def _median(self, fn, **how) -> float:
        import torch

        try:
            return self.session.median_ms(fn, **how)
        except torch.OutOfMemoryError as full:
            raise MemoryError from full
        finally:
            self.session.give_memory_back()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m grader.staff_rules.remeasure")
    parser.add_argument("results", type=Path, help="folder of a hand-in's results")
    parser.add_argument("--cells", type=int, default=6, help="how many to measure again")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    from a1 import session

    try:
        results = load(options.results)
        found = remeasure(results, options.cells, GpuMeasurer(), options.seed)
    except session.Stop as stop:
        sys.exit(f"remeasure: {stop}")
    print("\n".join(note.line() for note in found) or "every cell came out as handed in")
    print(f"(seed {options.seed})")


if __name__ == "__main__":
    main()
