"""Made-up tables that fit the schema: plausible shapes for plots and readers, not measurements."""

import random

import pandas as pd

from a1 import bench_gemm, bench_ops
from olmoe.config import OlmoeConfig
from shared.gpus import COURSE_GPU


def sample_gemm(seed: int = 0) -> pd.DataFrame:
    """A roofline with a launch cost of 6 us, four fifths of the peak, and some noise."""
    draw, rows = random.Random(seed), []
    for shape, (k, n) in bench_gemm.shapes(OlmoeConfig()).items():
        for m in bench_gemm.MS:
            flops, nbytes = 2 * m * k * n, 2 * (m * k + k * n + m * n)
            busy_ms = max(
                flops / (COURSE_GPU.peak_tflops * 8e8), nbytes / (COURSE_GPU.peak_gbs * 8e5)
            )
            rows.append(
                bench_gemm.row(shape, m, k, n, (busy_ms + 0.006) * draw.uniform(0.98, 1.02))
            )
    return pd.DataFrame(rows)


def sample_ops(seed: int = 0) -> pd.DataFrame:
    """Launch cost, twice the bandwidth within half the L2 cache, nine tenths of it beyond."""
    draw, rows = random.Random(seed), []
    for tensor_bytes in bench_ops.SIZES:
        for op, (tensors, _) in bench_ops.OPS.items():
            moved = tensors * tensor_bytes
            share = 2.0 if moved < COURSE_GPU.l2_mib * 2**19 else 0.9
            slower = {"silu(x) * y": 1.6, "norm": 1.1}.get(op, 1.0)
            busy_ms = slower * moved / (COURSE_GPU.peak_gbs * share * 1e6)
            rows.append(
                bench_ops.row(op, tensor_bytes, (busy_ms + 0.004) * draw.uniform(0.98, 1.02))
            )
    return pd.DataFrame(rows)


def sample_sweep_row(**changes: object) -> dict:
    row = {
        "layers": 4,
        "micro_batch_size": 4,
        "seqlen": 2048,
        "recompute": "no",
        "step_ms": 64.0,
        "forward_ms": 17.0,
        "backward_ms": 36.0,
        "recompute_ms": 0.0,
        "optimizer_ms": 10.5,
        "tokens_per_s": 128000.0,
        "mfu_percent": 42.0,
        "peak_gib": 21.5,
        "status": "ok",
        "run": "20270301T120000Z-0000",
    }
    return {**row, **changes}


def sample_memory(pieces: int, recompute: bool, seed: int = 0) -> pd.DataFrame:
    """A step's memory: up through the forward pass, down through the backward pass, gradients."""
    draw, level, levels = random.Random(seed), 11.0, [11.0]
    gradients = 3.8
    for piece in range(pieces):
        height = 26.0 / pieces
        kept = 0.25 if recompute else 1.0
        for _ in range(40):
            level += kept * height / 40
            levels += [level + draw.uniform(0, 0.6), level]
        levels.append(level + height / 4)
        for _ in range(40):
            level -= kept * height / 40
            level += gradients / 40 if piece == 0 else 0
            levels += [level + draw.uniform(0.3, 1.0) + (height / 5 if recompute else 0), level]
    levels += [level + 0.2, 11.0]
    return pd.DataFrame({"event": range(len(levels)), "gib": levels})
