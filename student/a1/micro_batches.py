"""One global batch, in micro batches of several sizes, without and with recomputation.

Writes micro_batches.csv, and micro_batches.png: memory over one step, for a global batch of half
the size, as one micro batch and as four.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder that holds olmoe/ and a1/

import pandas as pd
import torch

from a1 import memory_curve, plots, session
from a1.perfmodel import param_count
from olmoe.model import Olmoe
from olmoe.train import accumulated_step, make_optimizer
from shared.artifacts import OUT_OF_MEMORY

HEADER = "micro batch size  micro batches  recompute   step ms   tokens/s  peak GiB"


def grid(micro_batch_sizes: list[int]) -> list[tuple[bool, int]]:
    """(recompute, micro batch size), in the order in which they are run."""
    return [(recompute, size) for recompute in (False, True) for size in micro_batch_sizes]


def line(r: dict) -> str:
    """A row of micro_batches.csv as it is printed."""
    run = f"{r['micro_batch_size']:16d}  {r['micro_batches']:13d}  {r['recompute']:>9}"
    if r["status"] == OUT_OF_MEMORY:
        return f"{run}   {OUT_OF_MEMORY}"
    return f"{run}  {r['step_ms']:8.1f}  {r['tokens_per_s']:9,.0f}  {r['peak_gib']:8.2f}"


def split(model: Olmoe, sequences: int, size: int, seqlen: int) -> list:
    """A global batch of `sequences` random sequences, as micro batches of `size`."""
    return [session.micro_batch(model, size, seqlen, seed=i) for i in range(sequences // size)]


def measure(model, optimizer, micro_batches, recompute: bool) -> tuple[float, float] | None:
    """(step in ms, peak in GiB), or None when it does not fit."""
    torch.cuda.reset_peak_memory_stats()
    try:
        ms = session.median_ms(
            lambda: accumulated_step(model, optimizer, micro_batches, recompute), 1, 3
        )
        return ms, torch.cuda.max_memory_allocated() / 2**30
    except torch.OutOfMemoryError:
        pass
    optimizer.zero_grad(set_to_none=True)
    session.give_memory_back()
    return None


def table(out: session.Results, model, optimizer, args) -> None:
    for recompute, size in session.progress(grid(args.micro_batch_sizes), "runs of the step"):
        micro_batches = split(model, args.global_batch_size, size, args.seqlen)
        seen = measure(model, optimizer, micro_batches, recompute)
        ms, peak_gib = seen or (None, None)
        row = out.add(
            layers=args.layers,
            global_batch_size=args.global_batch_size,
            seqlen=args.seqlen,
            micro_batch_size=size,
            micro_batches=len(micro_batches),
            recompute="yes" if recompute else "no",
            step_ms=ms,
            tokens_per_s=seen and args.global_batch_size * args.seqlen / ms * 1e3,
            peak_gib=peak_gib,
            status="ok" if seen else OUT_OF_MEMORY,
        )
        session.say(line(row))


def panels(model, optimizer, sequences: int, seqlen: int) -> dict[str, pd.DataFrame | str]:
    """Caption -> memory over one step, or why there is none; for the four panels of the figure."""
    found = {}
    for recompute in (False, True):
        for pieces in (1, min(4, sequences)):
            micro_batches = split(model, sequences, sequences // pieces, seqlen)
            several = "1 micro batch" if pieces == 1 else f"{pieces} micro batches"
            caption = f"{several} of {sequences // pieces} × {seqlen}"
            caption += ", recomputation" if recompute else ", no recomputation"
            try:
                curve, note = memory_curve.of_step(
                    lambda m=micro_batches, r=recompute: accumulated_step(model, optimizer, m, r)
                )
                caption += f"\n({note})" if note else ""
            except torch.OutOfMemoryError:
                curve = OUT_OF_MEMORY
            found[caption] = curve
            optimizer.zero_grad(set_to_none=True)
            session.give_memory_back()
    return found


def main() -> None:
    parser = session.arguments(__doc__)
    parser.add_argument("--layers", type=session.positive, default=4, help="of the model")
    parser.add_argument("--global-batch-size", type=session.positive, default=16, help="sequences")
    parser.add_argument("--seqlen", type=session.positive, default=2048, help="tokens of each")
    parser.add_argument(
        "--micro-batch-sizes",
        type=session.positive,
        nargs="+",
        default=[16, 8, 4, 2, 1],
        help="sequences per pass",
    )
    args = parser.parse_args()
    for size in args.micro_batch_sizes:
        if args.global_batch_size % size:
            parser.error(f"{args.global_batch_size} sequences are no whole micro batches of {size}")
    session.need_gpu()
    model = session.random_model(args.layers)
    n_params = param_count(model.cfg)
    optimizer = make_optimizer(model)
    warm_up = split(model, 1, 1, min(args.seqlen, 128))
    for recompute in (
        False,
        True,
    ):  # from here on AdamW's moments exist, and the exercises are done
        accumulated_step(model, optimizer, warm_up, recompute)

    session.say(
        f"global batch size {args.global_batch_size}, {args.seqlen} tokens per sequence: "
        f"{args.global_batch_size * args.seqlen:,} tokens per step, {args.layers} layers"
    )
    session.say(HEADER)
    with session.results("micro_batches", args) as out:
        table(out, model, optimizer, args)
    half = max(1, args.global_batch_size // 2)
    figure = plots.memory(
        panels(model, optimizer, half, args.seqlen),
        kept_gib=6 * n_params / 2**30,
        state_gib=8 * n_params / 2**30,
        title=session.title(
            f"Memory over one step: {args.layers} layers, global batch of {half} × {args.seqlen}"
        ),
    )
    session.save_plot(figure, args.results / "micro_batches.png")


if __name__ == "__main__":
    session.run(main)
