"""Printed examples, made from results files by the very code that prints them in an experiment.

So an example changes with the measurement and with the script's format, and never by hand.
"""

from __future__ import annotations

from a1 import bench_gemm, micro_batches, regimes, sweep
from grader.suite.score_table import Scored, score_table
from olmoe.data import pack
from olmoe.prof import GpuCounters
from shared.assignment import Assignment

from .results import Results

COUNTERS = {
    "kernel_percent": "kernel_running_percent",
    "memory_percent": "memory_busy_percent",
    "clock_mhz": "clock_mhz",
    "power_w": "power_w",
}


def _whole(row: dict) -> dict:
    """The row with its counts as ints again."""
    return {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in row.items()}


def gemm_lines(r: Results, *points: tuple[str, int]) -> str:
    """Lines of bench_gemm.py for some (shape, M)."""
    return "\n".join(bench_gemm.line(_whole(r.gemm(shape, m))) for shape, m in points)


def regimes_lines(r: Results) -> str:
    """What regimes.py prints."""
    lines = []
    for workload in regimes.WORKLOADS:
        row = r.regime(workload)
        known = {
            field: row[column] for field, column in COUNTERS.items() if row[column] is not None
        }
        lines.append(f"{workload:<29} {row['ms']:8.4f} ms   {GpuCounters(**known)}")
    return "\n".join(lines)


def sweep_lines(r: Results, *configurations: tuple[int, int, int]) -> str:
    """Lines of sweep.py for some (layers, micro batch size, sequence length)."""
    return "\n".join(sweep.line(_whole(r.sweep(*one))) for one in configurations)


def micro_batches_header() -> str:
    return micro_batches.HEADER


def micro_batch_example() -> str:
    """Three short sequences, packed by the course's own code."""
    sequences = ([17, 4, 92, 58], [61, 8, 25], [70, 33, 12, 46, 5, 81])
    batch = pack(sequences)
    shown = {
        "tokens": batch.tokens.tolist(),
        "targets": batch.targets.tolist(),
        "cu_seqlens": batch.seqs.cu_seqlens.tolist(),
        "max_seqlen": batch.seqs.max_seqlen,
        "n_targets": batch.n_targets,
    }
    lines = [f"sequences   {', '.join(map(str, sequences))}"]
    return "\n".join(lines + [f"{name:<11} {value}" for name, value in shown.items()])


def unsolved_score(table: Assignment) -> str:
    """The score table of a fresh clone: Setup passes, and nothing else."""
    tests = [Scored("S", 0, 0, passed=True)]
    for one in table.exercises:
        if one.kind in ("coding", "experiment") and one.points:
            tests.append(Scored(one.key, 0, one.points, passed=False))
    return score_table(tests, table)


def solved_score(table: Assignment, key: str) -> str:
    """The score table of one exercise, solved."""
    points = table.exercise(key).points
    return score_table([Scored(key, points, points, passed=True)], table)
