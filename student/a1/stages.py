"""The GPU time of every stage of a training step.

Writes stages.csv, or stages_rc.csv with --recompute.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder that holds olmoe/ and a1/

import torch

from a1 import session
from a1.perfmodel import flops_per_token, optimizer_floor_ms, state_bytes
from olmoe.train import make_optimizer, stage_times, train_step

KINDS = ("forward", "backward", "recompute")


def totals(stages: dict[str, dict[str, float]]) -> dict[str, float]:
    """The three kinds of work, each added up over the stages."""
    return {kind: sum(times[kind] for times in stages.values()) for kind in KINDS}


def rows(run: dict, stages: dict, optimizer_ms: float, step: dict) -> list[dict]:
    """The rows of stages.csv.  `run` and `step`: the columns that every row, or the last, has."""
    cells = {f"{kind}_ms": total for kind, total in totals(stages).items()}
    return [
        *(
            {**run, "stage": name, **{f"{kind}_ms": times[kind] for kind in KINDS}}
            for name, times in stages.items()
        ),
        {**run, "stage": "step", **cells, "optimizer_ms": optimizer_ms, **step},
    ]


def report(table: list[dict], floor_ms: float, state_gib: float) -> str:
    """Those rows as they are printed."""
    lines = [f"{'stage':<10} {'forward ms':>11} {'backward ms':>12} {'recompute ms':>13}"]
    for r in table:
        name = "total" if r["stage"] == "step" else r["stage"]
        forward, backward, recompute = (r[f"{kind}_ms"] for kind in KINDS)
        lines.append(f"{name:<10} {forward:11.2f} {backward:12.2f} {recompute:13.2f}")
    step = table[-1]
    mfu = step["mfu_percent"]
    lines += [
        f"optimizer  {step['optimizer_ms']:.2f} ms (floor {floor_ms:.2f} ms)",
        f"step {step['step_ms']:.1f} ms = {step['tokens_per_s']:,.0f} tokens/s, "
        f"MFU {'n/a' if mfu is None else f'{mfu:.1f}%'}",
        f"peak memory {step['peak_gib']:.2f} GiB (weights + gradients + Adam: {state_gib:.2f} GiB)",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = session.arguments(__doc__)
    parser.add_argument("--layers", type=session.positive, default=4, help="of the model")
    parser.add_argument("--micro-batch-size", type=session.positive, default=4, help="sequences")
    parser.add_argument("--seqlen", type=session.positive, default=2048, help="tokens of each")
    parser.add_argument("--recompute", action="store_true", help="with recomputation")
    parser.add_argument("--seconds", type=float, default=4.0, help="of steps for the counters")
    args = parser.parse_args()
    session.need_gpu()
    gpu = session.sheet()
    model = session.random_model(args.layers)
    state_gib = state_bytes(model.cfg) / 2**30
    floor_ms = optimizer_floor_ms(model.cfg, *([gpu] if gpu else []))
    flops = flops_per_token(model.cfg, args.seqlen)
    optimizer = make_optimizer(model)
    micro_batch = session.micro_batch(model, args.micro_batch_size, args.seqlen)

    with session.results("stages_rc" if args.recompute else "stages", args) as out:
        torch.cuda.reset_peak_memory_stats()
        stages, optimizer_ms = stage_times(model, optimizer, micro_batch, recompute=args.recompute)
        peak_gib = torch.cuda.max_memory_allocated() / 2**30
        step_ms = sum(totals(stages).values()) + optimizer_ms
        tokens_per_s = args.micro_batch_size * args.seqlen / step_ms * 1e3
        seen = session.counters(
            lambda: train_step(model, optimizer, micro_batch, args.recompute), step_ms, args.seconds
        )
        run = {
            "layers": args.layers,
            "micro_batch_size": args.micro_batch_size,
            "seqlen": args.seqlen,
            "recompute": "yes" if args.recompute else "no",
        }
        step = {
            "step_ms": step_ms,
            "tokens_per_s": tokens_per_s,
            "mfu_percent": session.mfu_percent(tokens_per_s, flops, gpu),
            "peak_gib": peak_gib,
            **session.counter_cells(seen),
        }
        for row in rows(run, stages, optimizer_ms, step):
            out.add(**row)
        session.say(report(out.rows, floor_ms, state_gib))
    session.say(
        f"counters: a kernel was running {session.shown(seen.kernel_percent)}% of the time, "
        f"memory was busy {session.shown(seen.memory_percent)}%, "
        f"clock {session.shown(seen.clock_mhz)} MHz, {session.shown(seen.power_w)} W"
    )


if __name__ == "__main__":
    session.run(main)
