"""What every experiment needs around its measurements: a GPU, a model, a file, a way to stop.

    def main():
        args = session.arguments(__doc__).parse_args()
        with session.results("gemm", args) as out:
            out.add(shape="router", ...)             # a row; the file is written at the end
    session.run(main)

A script that cannot go on says so in one line and exits with 1.  Ctrl-C, and the signal with which
Slurm announces the end of a job, keep what was measured until then; the script exits with 130.
"""

import argparse
import contextlib
import errno
import gc
import math
import os
import signal
import statistics
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm

from olmoe.config import OlmoeConfig
from olmoe.data import random_micro_batch
from olmoe.model import Olmoe
from olmoe.prof import GpuCounters, GpuMonitor, cuda_time
from shared import artifacts, provenance
from shared.assignment import assignment
from shared.gpus import Gpu, UnknownGpuError
from shared.gpus import gpu as data_sheet

DEVICE = "cuda"
INTERRUPTED = 130  # 128 + SIGINT, as shells count
CANNOT_WRITE = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your quota is used up",
    errno.EACCES: "permission denied",
    errno.EROFS: "it can only be read",
}


class Stop(Exception):
    """The script cannot go on; the message is one line that says why and what to do."""


# --- beginning and end ---


class _Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """The docstring as it is, and every argument's default."""


def arguments(doc: str, results: bool = True) -> argparse.ArgumentParser:
    """A parser that prints the script's docstring for --help; with --results if it writes any."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=_Help)
    if results:
        folder = Path("results/a1")
        parser.add_argument("--results", type=Path, default=folder, help="folder to write into")
    return parser


def positive(text: str) -> int:
    """An argument that is a number of something."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def run(main: Callable[[], None]) -> None:
    """Run a script's `main`; whatever ends it early is said in one line."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        main()
    except Stop as stop:
        sys.exit(f"{Path(sys.argv[0]).name}: {stop}")
    except artifacts.ArtifactError as wrong:
        sys.exit(str(wrong))
    except NotImplementedError as missing:
        sys.exit(_exercise_first(missing))
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except torch.OutOfMemoryError:
        sys.exit(f"{Path(sys.argv[0]).name}: out of memory: this needs more than the GPU has free")
    except OSError as error:
        if error.errno not in CANNOT_WRITE:
            raise
        sys.exit(f"cannot write {error.filename or 'the results'}: {CANNOT_WRITE[error.errno]}")


def _exercise_first(missing: NotImplementedError) -> str:
    """Which coding exercise is not done yet, from where the NotImplementedError comes."""
    frame = traceback.extract_tb(missing.__traceback__)[-1]
    for exercise in assignment().of_kind("coding"):
        functions = [name.rsplit(".")[-1] for name in exercise.implements]
        if frame.filename.endswith(exercise.file.rsplit("/")[-1]) and frame.name in functions:
            return (
                f"Coding {exercise.number} first: {frame.name} in {exercise.file} is not written "
                f"yet (make test C={exercise.number})"
            )
    return f"{frame.filename}, line {frame.lineno}: {frame.name} is not implemented"


# --- the machine ---


def need_gpu() -> None:
    """Stop unless there is a GPU."""
    if not torch.cuda.is_available():
        script = " ".join(["python", *sys.argv])
        raise Stop(f"no GPU here; in `make gpu-shell`, or with: sbatch slurm/job.sbatch {script}")


def gpu_name() -> str:
    """The GPU's name, as its driver reports it."""
    return torch.cuda.get_device_name()


def sheet() -> Gpu | None:
    """The data sheet of this machine's GPU, or None, and a line on stderr, without one."""
    try:
        return data_sheet(gpu_name())
    except UnknownGpuError:
        print(
            f"note: no data sheet of {gpu_name()} in shared/gpus.toml: no peaks, no MFU",
            file=sys.stderr,
        )
        return None


def title(what: str) -> str:
    """A plot's title: what it shows, on which machine, when."""
    return f"{what}\n{gpu_name()}, {date.today().isoformat()}"


def give_memory_back() -> None:
    """Free what nobody holds any more.  After an out of memory: outside the `except`, whose
    traceback still holds the tensors of the failed call."""
    gc.collect()
    torch.cuda.empty_cache()


# --- the model ---


def random_model(layers: int | None = None, moe_impl: str = "grouped") -> Olmoe:
    """OLMoE's shape with random weights, in bf16 on the GPU; its first `layers` layers, or all."""
    cfg = OlmoeConfig()
    cfg = cfg if layers is None else cfg.with_layers(layers)
    return Olmoe(cfg, moe_impl=moe_impl, device=DEVICE, dtype=torch.bfloat16)


def micro_batch(model: Olmoe, micro_batch_size: int, seqlen: int, seed: int = 0):
    """Random tokens, on the GPU."""
    return random_micro_batch(model.cfg, micro_batch_size, seqlen, device=DEVICE, seed=seed)


def checkpoint(args: argparse.Namespace) -> Path:
    """The checkpoint's folder: --weights, or else the environment's OLMOE_WEIGHTS."""
    folder = args.weights or os.environ.get("OLMOE_WEIGHTS")
    if not folder:
        raise Stop("no checkpoint: say --weights FOLDER, or set OLMOE_WEIGHTS" + _random(args))
    if not (Path(folder) / "config.json").is_file():
        raise Stop(f"no checkpoint in {folder}: it has no config.json" + _random(args))
    return Path(folder)


def _random(args: argparse.Namespace) -> str:
    return " (or --random-weights)" if hasattr(args, "random_weights") else ""


# --- measuring ---


def median_ms(fn: Callable[[], Any], warmup: int = 3, repeats: int = 10) -> float:
    """Median of the timed calls of Coding Exercise 1's `cuda_time`, in milliseconds."""
    return statistics.median(cuda_time(fn, warmup=warmup, repeats=repeats))


def counters(fn: Callable[[], Any], ms: float, seconds: float = 3.0) -> GpuCounters:
    """Means of the GPU's counters while `fn`, which takes `ms`, runs again and again."""
    calls = max(1, round(seconds * 1e3 / ms))
    with GpuMonitor() as monitor:
        for _ in range(calls):
            fn()
        torch.cuda.synchronize()
    return monitor.counters


def clock_and_power() -> dict[str, float | None]:
    """The clock and the power draw at this moment, as cells; blank where the GPU does not tell."""

    def ask(counter: Callable[[], int]) -> int | None:
        with contextlib.suppress(Exception):  # NVML's refusals have many types, missing is one
            return counter()
        return None

    milliwatts = ask(torch.cuda.power_draw)
    return {
        "clock_mhz": ask(torch.cuda.clock_rate),
        "power_w": None if milliwatts is None else milliwatts / 1e3,
    }


def counter_cells(seen: GpuCounters) -> dict[str, float | None]:
    """Counters as cells of a table: blank where the GPU does not tell."""
    cells = {
        "kernel_running_percent": seen.kernel_percent,
        "memory_busy_percent": seen.memory_percent,
        "clock_mhz": seen.clock_mhz,
        "power_w": seen.power_w,
    }
    return {name: None if math.isnan(value) else value for name, value in cells.items()}


def shown(value: float | None, form: str = ".0f") -> str:
    """A counter as it is printed: n/a where the GPU does not tell."""
    return "n/a" if value is None or math.isnan(value) else format(value, form)


def mfu_percent(tokens_per_s: float, flops_per_token: float, gpu: Gpu | None) -> float | None:
    """Model FLOPs utilization: the share of the GPU's peak spent on the model's arithmetic.

    Chowdhery et al., arXiv:2204.02311, appendix B.
    """
    return gpu and 100 * tokens_per_s * flops_per_token / (gpu.peak_tflops * 1e12)


def progress(items: Iterable, what: str) -> tqdm:
    """The items, with a bar of what is left on a terminal.  Print with `say` in the meantime."""
    return tqdm(items, desc=what, leave=False, dynamic_ncols=True, disable=None)


def say(line: str = "") -> None:
    """Print a line without breaking the progress bar."""
    tqdm.write(line, file=sys.stdout)
    sys.stdout.flush()


# --- results ---


class Results:
    """The rows of one artifact, and where they go.  See `results`."""

    def __init__(self, name: str, args: argparse.Namespace) -> None:
        self.table = artifacts.table(name)
        self.path = args.results / self.table.file
        self.rows: list[dict] = []
        _try_to_write(self.path.parent)
        ours = [module for name, module in sys.modules.items() if name.startswith("a1.")]
        code = {Path(sys.argv[0]), *(Path(module.__file__) for module in ours)}
        self.run = provenance.describe(sys.argv, code)

    def add(self, **row: Any) -> dict:
        """One row.  A table that grows is written at once."""
        if self.table.append:
            row["run"] = self.run["run"]
            self._write([row])
        self.rows.append(row)
        return row

    def frame(self) -> pd.DataFrame:
        """All rows so far."""
        return pd.DataFrame(self.rows)

    def close(self) -> None:
        """Write what is there."""
        if self.rows and not self.table.append:
            self._write(self.rows)

    def _write(self, rows: list[dict]) -> None:
        artifacts.write(self.table.name, rows, self.path)
        provenance.write_sidecar(self.path, self.run, append=self.table.append)


def _try_to_write(folder: Path) -> None:
    """Raise what writing would raise: before the measurement, not after it."""
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / f".writable.{os.getpid()}"
    try:
        probe.write_bytes(bytes(2**16))
    finally:
        probe.unlink(missing_ok=True)


@contextlib.contextmanager
def results(name: str, args: argparse.Namespace, quiet: bool = False) -> Iterator[Results]:
    """Collect the rows of an artifact in a block, and write it, and its sidecar, at the end.

    Also when the block is interrupted or fails: what was measured is kept.
    """
    out = Results(name, args)
    try:
        yield out
    except BaseException:
        out.close()
        if out.rows:
            print(f"\nkept {len(out.rows)} rows in {out.path}", file=sys.stderr)
        raise
    out.close()
    if not quiet:
        say(f"{'appended to' if out.table.append else 'wrote'} {out.path}")


def save_plot(figure: Any, path: Path) -> None:
    """Write a figure, all of it or nothing, and say so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        figure.savefig(partial, format="png", dpi=150)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    say(f"wrote {path}")
