"""Runs a few forward passes or training steps for a profiler to record.

    python a1/profile_step.py --layers 4 --micro-batch-size 8 --seqlen 256 --random-weights
    python a1/profile_step.py --recorder torch --name demo --layers 4 ...

`a1/nsys.sh NAME ...` runs it under Nsight Systems, which records from `torch.cuda.profiler.start()`
to `stop()`: after the model is loaded and warmed up. Where nsys is not installed, `--recorder
torch` records with torch.profiler instead, and writes the same files under the name of `--name`.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder that holds olmoe/ and a1/

import torch

from a1 import session
from a1.recording import RecordingError
from a1.session import DEVICE, Stop, positive
from olmoe.config import OlmoeConfig
from olmoe.load import CheckpointError, load
from olmoe.model import MOE_IMPLS, Olmoe
from olmoe.prof import annotate, nvtx_range
from olmoe.train import make_optimizer, train_step
from shared import provenance
from shared.artifacts import write_text

WARM_UP = 3  # steps; the first ones load kernels and allocate memory
HERE = Path(__file__).parent
CODE = ("profile_step.py", "nsys.sh", "ranges.py", "nsys_export.py", "torch_recorder.py",
        "recording.py", "session.py")  # fmt: skip


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = session.arguments(__doc__)
    add = parser.add_argument
    add("--mode", choices=("forward", "train"), default="forward",
        help="forward passes of the pretrained model, or training steps of a random one "
        "(default: %(default)s)")  # fmt: skip
    add("--layers", type=positive, help="only the model's first layers (default: all)")
    add("--micro-batch-size", type=positive, default=1, help="sequences (default: %(default)s)")
    add("--seqlen", type=positive, default=512, help="tokens of each (default: %(default)s)")
    add("--moe-impl", choices=MOE_IMPLS, default="grouped", help="(default: %(default)s)")
    add("--steps", type=positive, default=2, help="recorded steps (default: %(default)s)")
    add("--recompute", action="store_true", help="recompute activations (with --mode train)")
    add("--weights", help="the checkpoint's folder (default: $OLMOE_WEIGHTS)")
    add("--random-weights", action="store_true",
        help="a random model of the checkpoint's shape instead of the checkpoint")  # fmt: skip
    add("--memory-snapshot", metavar="NAME", type=plain_name,
        help="run one more step and write every allocation in it to reports/a1/NAME.pickle, "
        "for https://pytorch.org/memory_viz")  # fmt: skip
    add("--recorder", choices=("nsys", "torch"), default="nsys",
        help="who records; nsys does if it started this script (default: %(default)s)")  # fmt: skip
    add("--name", type=plain_name, help="what to call the recording of --recorder torch")
    add("--run-note", type=Path, metavar="FILE",
        help="where to note what ran, for the sidecars (nsys.sh says so)")  # fmt: skip
    add("--reports", type=Path, default=Path("reports/a1"),
        help="folder of recordings and snapshots (default: %(default)s)")  # fmt: skip
    args = parser.parse_args(arguments)
    if args.recompute and args.mode != "train":
        parser.error("--recompute needs --mode train: a forward pass alone keeps no activations")
    if args.recorder == "torch" and not args.name:
        parser.error("--recorder torch needs --name: what shall the recording be called?")
    return args


def plain_name(text: str) -> str:
    """An argument that becomes the name of a file."""
    if not text or text.startswith((".", "-")) or "/" in text:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be a file's name")
    return text


# --- what is recorded -----------------------------------------------------------------------------


def build(args: argparse.Namespace) -> Olmoe:
    """The model, with a range for every module.

    Raises Stop if there is no such checkpoint, NotImplementedError before Coding Exercise 4.
    """
    most = OlmoeConfig().n_layers
    if args.mode == "train" or args.random_weights:
        model = session.random_model(args.layers, args.moe_impl)
    elif args.layers and args.layers > most:
        raise Stop(f"--layers {args.layers}: the pretrained model has {most} layers")
    else:
        try:
            model = load(
                session.checkpoint(args),
                device=DEVICE,
                n_layers=args.layers,
                moe_impl=args.moe_impl,
            )
        except CheckpointError as wrong:
            raise Stop(str(wrong)) from None
    annotate(model)
    return model


def step_function(args: argparse.Namespace, model: Olmoe) -> Callable[[], None]:
    """One forward pass, or one training step, as a function of no arguments."""
    batch = session.micro_batch(model, args.micro_batch_size, args.seqlen)

    optimizer = make_optimizer(model) if args.mode == "train" else None

    def forward() -> None:
        with torch.no_grad(), nvtx_range("forward"):
            model(batch.tokens, batch.seqs)

    def train() -> None:
        train_step(model, optimizer, batch, recompute=args.recompute)

    return train if args.mode == "train" else forward


def run_steps(step: Callable[[], None], count: int) -> float:
    """Run `count` steps, each in a range called `step`. GPU time of one, in ms.

    Waits for the GPU at the end. Not `cuda_time`, which has a pair of events for each call:
    between two steps there is nothing here that a plain loop does not have.
    """
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        with nvtx_range("step"):
            step()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / count


# --- recording ------------------------------------------------------------------------------------


def record_for_nsys(step: Callable[[], None], steps: int) -> float:
    """Runs the steps between the two calls that nsys was told to listen for. ms of one step."""
    torch.cuda.profiler.start()
    try:
        return run_steps(step, steps)
    finally:
        torch.cuda.profiler.stop()


def record_with_torch(step: Callable[[], None], steps: int, path: Path) -> float:
    """Records the steps with torch.profiler. ms of one step."""
    from a1 import torch_recorder

    times_ms = []
    torch_recorder.record(
        lambda: times_ms.append(run_steps(step, steps)), lambda: run_steps(step, 1), path
    )
    return times_ms[0]


def snapshot_memory(step: Callable[[], None], path: Path) -> None:
    """Write a record of every allocation and free of one step, for PyTorch's memory visualizer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Stacks of allocations alone: taken while memory is freed too, they lose the exception by
    # which torch's checkpoint ends a recomputation early (seen with torch 2.11).
    torch.cuda.memory._record_memory_history(context="alloc", stacks="python")
    try:
        step()
        torch.cuda.synchronize()
        torch.cuda.memory._dump_snapshot(str(path))
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    print(f"wrote {path}")


def main() -> None:
    args = parse()
    session.need_gpu()
    run = provenance.describe(sys.argv, [HERE / file for file in CODE])
    model = build(args)
    step = step_function(args, model)
    run_steps(step, WARM_UP)

    torch.cuda.reset_peak_memory_stats()
    before_ms = run_steps(step, args.steps)
    trace = args.reports / f"{args.name}.trace.json.gz"
    if args.recorder == "torch":
        run["recorder"] = f"torch.profiler {torch.__version__}"
        recording_ms = record_with_torch(step, args.steps, trace)
    else:
        run["recorder"] = os.environ.get("NSYS_VERSION", "nsys")
        recording_ms = record_for_nsys(step, args.steps)
    peak_gib = torch.cuda.max_memory_allocated() / 2**30
    print(
        f"one step: {before_ms:.1f} ms before the recording started, "
        f"{recording_ms:.1f} ms while recording"
    )
    print(f"peak memory allocated: {peak_gib:.2f} GiB", flush=True)
    if args.memory_snapshot:
        snapshot_memory(step, args.reports / f"{args.memory_snapshot}.pickle")
    run |= {"step_ms_before": before_ms, "step_ms_recording": recording_ms, "peak_gib": peak_gib}
    if args.recorder == "torch":
        write_text(args.reports / f"{args.name}.run.json", json.dumps(run, indent=1) + "\n")
        summarize(args, trace)
    elif args.run_note:
        write_text(args.run_note, json.dumps(run, indent=1) + "\n")


def summarize(args: argparse.Namespace, trace: Path) -> None:
    """The CSV files and the table, which nsys.sh makes of an nsys recording."""
    from a1 import ranges, torch_recorder

    try:
        torch_recorder.write_reports(torch_recorder.Trace.read(trace), args.name, args.results)
        table = ranges.summarize_recording(args.name, args.results, args.reports)
    except RecordingError as wrong:
        raise Stop(str(wrong)) from None
    print(f"wrote {table}")
    print(f"wrote {trace} and {args.results}/{args.name}_*.csv")


if __name__ == "__main__":
    session.run(main)
