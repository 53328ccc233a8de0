"""Training steps over a grid of configurations: time, throughput, memory, and the GPU's counters.

Appends to sweep.csv, row by row.  Delete the file to start over.
"""

import argparse
import sys
from itertools import product
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder that holds olmoe/ and a1/

import torch

from a1 import session
from a1.perfmodel import flops_per_token
from a1.stages import totals
from olmoe.train import make_optimizer, stage_times, train_step
from shared import artifacts
from shared.artifacts import OUT_OF_MEMORY

CONFIGURATION = ("layers", "micro_batch_size", "seqlen", "recompute")


def grid(args: argparse.Namespace) -> list[tuple[int, int, int]]:
    """(layers, micro batch size, sequence length): one model after another, small steps first."""
    steps = product(args.micro_batch_sizes, args.seqlens)
    by_tokens = sorted(steps, key=lambda step: (step[0] * step[1], step[1]))
    return [(layers, *step) for layers in sorted(set(args.layers)) for step in by_tokens]


def measured(path: Path) -> set[tuple]:
    """The configurations that are in sweep.csv already."""
    if not path.exists():
        return set()
    return set(
        artifacts.read(path, "sweep")[list(CONFIGURATION)].itertuples(index=False, name=None)
    )


def line(r: dict) -> str:
    """A row of sweep.csv as it is printed."""
    step = f"{r['layers']:2d} layers {r['micro_batch_size']:4d} x {r['seqlen']:<5d}"
    step += " recompute " if r["recompute"] == "yes" else " "
    if r["status"] == OUT_OF_MEMORY:
        return step + OUT_OF_MEMORY
    n = session.shown
    return (
        f"{step}{r['step_ms']:8.1f} ms {r['tokens_per_s']:9,.0f} tok/s  "
        f"MFU {n(r['mfu_percent'], '.1f')}%  {r['peak_gib']:5.1f} GiB  "
        f"kernel {n(r['kernel_running_percent'])}%  memory {n(r['memory_busy_percent'])}%  "
        f"{n(r['clock_mhz'])} MHz"
    )


def measure(model, optimizer, micro_batch, recompute: bool, seconds: float) -> dict | None:
    """The measured columns of a row, or None when the step does not fit."""
    try:
        torch.cuda.reset_peak_memory_stats()
        step_ms = session.median_ms(lambda: train_step(model, optimizer, micro_batch, recompute))
        peak_gib = torch.cuda.max_memory_allocated() / 2**30
        stages, optimizer_ms = stage_times(model, optimizer, micro_batch, recompute=recompute)
        seen = session.counters(
            lambda: train_step(model, optimizer, micro_batch, recompute), step_ms, seconds
        )
        return {
            "step_ms": step_ms,
            **{f"{kind}_ms": total for kind, total in totals(stages).items()},
            "optimizer_ms": optimizer_ms,
            "peak_gib": peak_gib,
            **session.counter_cells(seen),
        }
    except torch.OutOfMemoryError:
        pass
    optimizer.zero_grad(set_to_none=True)
    optimizer.state.clear()  # a moment may be missing, and AdamW would not notice
    session.give_memory_back()
    return None


def main() -> None:
    parser = session.arguments(__doc__)
    several = {"type": session.positive, "nargs": "+"}
    parser.add_argument("--layers", **several, default=[4], help="of the model")
    parser.add_argument("--micro-batch-sizes", **several, default=[1, 2, 4, 8], help="sequences")
    parser.add_argument("--seqlens", **several, default=[256, 512, 1024, 2048], help="tokens")
    parser.add_argument("--recompute", action="store_true", help="with recomputation")
    parser.add_argument(
        "--resume", action="store_true", help="pass over what sweep.csv has already"
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="of steps for the counters")
    args = parser.parse_args()
    session.need_gpu()
    gpu, recompute = session.sheet(), "yes" if args.recompute else "no"
    model = optimizer = None
    with session.results("sweep", args) as out:
        done = measured(out.path) if args.resume else set()
        todo = [step for step in grid(args) if (*step, recompute) not in done]
        for layers, micro_batch_size, seqlen in session.progress(todo, "configurations"):
            if model is None or model.cfg.n_layers != layers:
                model = optimizer = None  # before the next one takes their memory
                session.give_memory_back()
                model = session.random_model(layers)
                optimizer = make_optimizer(model)
            micro_batch = session.micro_batch(model, micro_batch_size, seqlen)
            seen = measure(model, optimizer, micro_batch, args.recompute, args.seconds)
            row = {
                "layers": layers,
                "micro_batch_size": micro_batch_size,
                "seqlen": seqlen,
                "recompute": recompute,
                "status": "ok" if seen else OUT_OF_MEMORY,
            }
            if seen:
                tokens_per_s = micro_batch_size * seqlen / seen["step_ms"] * 1e3
                flops = flops_per_token(model.cfg, seqlen)
                seen["tokens_per_s"] = tokens_per_s
                seen["mfu_percent"] = session.mfu_percent(tokens_per_s, flops, gpu)
            session.say(line(out.add(**row, **(seen or {}))))


if __name__ == "__main__":
    session.run(main)
