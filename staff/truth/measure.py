"""Measures the training steps of Coding 9 on the GPU at hand: one occasion, as raw times.

    PYTHONPATH=staff:student:. python staff/truth/measure.py --occasion monday --out FOLDER

Writes FOLDER/monday.jsonl: a line about the run (machine, software, code), then a line per step,
as they are measured. Run again after an interruption, it goes on with what is missing. An occasion
is one machine on one day: what differs between two of them is what truth cannot know, so measure
at least two. `make_tables.py` makes the tables that predictions are graded on, without a GPU.

Nobody knows beforehand which definition of a step's time repeats best, so each step is timed in
three ways, and all times are kept:

plain   as a1/sweep.py does: 3 steps, then 10, each between two events. The median is what a
        student sees. Steps follow each other, so a step that the host launches more slowly than
        the GPU runs it takes the host's time.
groups  the same back to back in groups of at least GROUP_MS, with Python's garbage collection
        off and the process on a few cores of its own. A time is a group's mean.
queued  each step alone behind a kernel that keeps the GPU busy while the host launches the step:
        the GPU's own time, in which no launch is waited for. `hidden` says whether that worked.

Besides: `stages`, where the time of a step goes (Coding 7), and at the beginning and the end of a
run two `references`, a large GEMM and a large addition. They tell what differs between occasions.

The learning rate is so small that no bf16 weight changes: the weights, and with them the routing,
stay what they are, whatever was measured before, and the optimizer's work is the same.
`--lr 1e-4` trains, as a1/sweep.py does; `--lr 0` was the default on the first occasion, "noon".
"""

import argparse
import contextlib
import gc
import hashlib
import itertools
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import torch

from a1 import session
from a1.stages import totals
from olmoe.prof import cuda_time
from olmoe.train import make_optimizer, stage_times, train_step
from shared import provenance
from staff.truth.configurations import HIDDEN, PUBLIC, Configuration

GROUPS, GROUP_MS = 8, 40.0
QUEUED = 5
STAGE_STEPS = 4
IDLE_LR = 1e-12  # an update is about as large; half the last bit of a bf16 0.02 is 6e-5
CORES = 4
LONGEST_SPIN_MS = 100.0
CALIBRATION_CYCLES = 20_000_000
REFERENCE_GEMM = 8192
REFERENCE_NUMBERS = 2**28  # a tensor of 1 GiB in fp32
OUT_OF_MEMORY = "out of memory"


HERE = Path(__file__).parent
OWN_CODE = ("configurations.py", "measure.py")


class Occasion:
    """The file of an occasion: what is in it already, and where new lines go."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run = provenance.describe(sys.argv, [Path(session.__file__)])
        self.run["code"] |= {f"staff/truth/{name}": _sha256(HERE / name) for name in OWN_CODE}
        lines = read_lines(path) if path.exists() else []
        self.done = {configuration(line) for line in lines if "layers" in line}
        for before in (line["gpu_uuid"] for line in lines if "started" in line):
            if before != self.run["gpu_uuid"]:
                raise session.Stop(
                    f"{path} was measured on another GPU ({before}): give this one an --occasion "
                    "of its own"
                )
        path.parent.mkdir(parents=True, exist_ok=True)
        self.add({**self.run, "occasion": path.stem, "date": date.today().isoformat()})

    def note_references(self, when: str, lr: float) -> None:
        seen = references()
        self.add({"references": when, "run": self.run["run"], "lr": lr, **seen})
        session.say(f"references {when}: {seen}")

    def add(self, line: dict) -> None:
        """Append a line, and have it on the disk."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())


def read_lines(path: Path) -> list[dict]:
    """The lines of an occasion. One that was cut off by an interruption, the last, is dropped."""
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return [json.loads(line) for line in whole.splitlines()]


def configuration(line: dict) -> Configuration:
    """The step that a line is about."""
    return Configuration(*(line[name] for name in Configuration._fields))


def measure(one: Configuration, model, optimizer) -> dict:
    """All that is kept of one configuration; {"status": "out of memory"} if it does not fit."""
    micro_batch = session.micro_batch(model, one.micro_batch_size, one.seqlen)

    def step():
        train_step(model, optimizer, micro_batch, one.recompute)

    try:
        peak_bytes = _peak_bytes(step)
        plain_ms = cuda_time(step)
        step_ms = statistics.median(plain_ms)
        with undisturbed():
            group_ms, steps_per_group, clocks = _groups(step, step_ms)
            queued = _queued(step)
            stages, optimizer_ms = stage_times(
                model, optimizer, micro_batch, one.recompute, warmup=1, steps=STAGE_STEPS
            )
        return {
            "status": "ok",
            "peak_bytes": peak_bytes,
            "plain_ms": _short(plain_ms),
            "group_ms": _short(group_ms),
            "steps_per_group": steps_per_group,
            **queued,
            "stages": {
                **{f"{kind}_ms": round(ms, 4) for kind, ms in totals(stages).items()},
                "optimizer_ms": round(optimizer_ms, 4),
            },
            **clocks,
        }
    except torch.OutOfMemoryError:
        pass
    optimizer.zero_grad(set_to_none=True)
    optimizer.state.clear()  # a moment may be missing, and AdamW would not notice
    session.give_memory_back()
    return {"status": OUT_OF_MEMORY}


def _peak_bytes(step: Callable) -> int:
    """Peak of a step that starts with nothing cached: the allocator's past rounds nothing up."""
    step()  # the optimizer's moments and the libraries' workspaces exist from now on
    torch.cuda.synchronize()
    session.give_memory_back()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def _groups(step: Callable, step_ms: float) -> tuple[list[float], int, dict]:
    """Mean step of each group of steps, in ms; steps in a group; clock and power meanwhile."""
    n = max(1, math.ceil(GROUP_MS / step_ms))
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(GROUPS + 1)]
    step()
    marks[0].record()
    for i, mark in enumerate(marks[1:]):
        for _ in range(n):
            step()
        if i == GROUPS - 2:  # towards the end, with a group yet to come
            clocks = session.clock_and_power()
        mark.record()
    torch.cuda.synchronize()
    times = [a.elapsed_time(b) / n for a, b in itertools.pairwise(marks)]
    return times, n, clocks


def _queued(step: Callable) -> dict:
    """GPU time of single steps that the host launched while the GPU was busy with a spin."""
    queued_ms, host_ms, hidden = [], [], []
    spin_ms = 0.0
    for i in range(QUEUED + 1):
        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(round(cycles_per_ms() * spin_ms))
        start.record()
        before_s = time.perf_counter()
        step()
        end.record()
        host = (time.perf_counter() - before_s) * 1e3
        late = start.query()  # the spin was over before the last launch (or the queue was full)
        torch.cuda.synchronize()
        if i == 0:  # this one tells how long a spin has to be
            spin_ms = min(1.5 * host + 2, LONGEST_SPIN_MS)
        else:
            queued_ms.append(start.elapsed_time(end))
            host_ms.append(host)
            hidden.append(not late)
    return {"queued_ms": _short(queued_ms), "host_ms": _short(host_ms), "hidden": hidden}


_cycles: list[float] = []


def cycles_per_ms() -> float:
    """Cycles of `torch.cuda._sleep` in a millisecond at the GPU's full clock, measured once."""
    if not _cycles:
        times_ms = cuda_time(lambda: torch.cuda._sleep(CALIBRATION_CYCLES), 5, 5)
        _cycles.append(CALIBRATION_CYCLES / statistics.median(times_ms))
    return _cycles[0]


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """No garbage collection, and this process, all its threads, on the same few cores."""
    before = {}
    for thread in map(int, os.listdir("/proc/self/task")):
        with contextlib.suppress(OSError):  # it has ended
            before[thread] = os.sched_getaffinity(thread)
    cores = sorted(os.sched_getaffinity(0))[-CORES:]
    gc.collect()
    gc.disable()
    try:
        for thread in before:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(thread, cores)
        yield
    finally:
        gc.enable()
        for thread, allowed in before.items():
            with contextlib.suppress(OSError):
                os.sched_setaffinity(thread, allowed)


def references() -> dict:
    """What this machine makes of two workloads that have nothing to do with the model."""
    n = REFERENCE_GEMM
    a, b = (torch.randn(n, n, device=session.DEVICE, dtype=torch.bfloat16) for _ in range(2))
    gemm_ms = session.median_ms(lambda: torch.mm(a, b))
    x, y, out = (torch.ones(REFERENCE_NUMBERS, device=session.DEVICE) for _ in range(3))
    add_ms = session.median_ms(lambda: torch.add(x, y, out=out))
    return {
        "gemm_tflops": round(2 * n**3 / gemm_ms / 1e9, 1),
        "add_gbs": round(3 * 4 * REFERENCE_NUMBERS / add_ms / 1e6, 1),
        **session.clock_and_power(),
    }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _short(times_ms: list[float]) -> list[float]:
    return [round(t, 4) for t in times_ms]


def described(one: Configuration, seen: dict) -> str:
    """A measured configuration as it is printed."""
    if seen["status"] != "ok":
        return f"{one}: {seen['status']}"
    plain, groups, queued = (
        statistics.median(seen[name]) for name in ("plain_ms", "group_ms", "queued_ms")
    )
    hidden = "" if all(seen["hidden"]) else f" (hidden {sum(seen['hidden'])}/{QUEUED})"
    return (
        f"{one!s:32} plain {plain:8.2f}  groups {groups:8.2f}  queued {queued:8.2f} ms{hidden}  "
        f"host {statistics.median(seen['host_ms']):6.2f} ms  {seen['peak_bytes'] / 2**30:6.2f} GiB"
    )


def main() -> None:
    parser = session.arguments(__doc__, results=False)
    parser.add_argument("--occasion", required=True, help="name of the file, without .jsonl")
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")
    parser.add_argument("--only", choices=("public", "hidden"), help="one of the two lists")
    parser.add_argument("--layers", type=session.positive, nargs="+", help="only these models")
    parser.add_argument("--lr", type=float, default=IDLE_LR, help="learning rate")
    parser.add_argument("--quick", action="store_true", help="two steps of the smallest models")
    args = parser.parse_args()
    session.need_gpu()
    torch.set_num_threads(1)
    occasion = Occasion(args.out / f"{args.occasion}.jsonl")
    todo = _chosen(args, occasion.done)
    if todo:
        occasion.note_references("before", args.lr)
    model = optimizer = None
    for one in session.progress(todo, "configurations"):
        if model is None or model.cfg.n_layers != one.layers:
            model = optimizer = None  # before the next one takes their memory
            session.give_memory_back()
            model = session.random_model(one.layers)
            optimizer = make_optimizer(model, lr=args.lr)
        seen = measure(one, model, optimizer)
        occasion.add({**one._asdict(), "run": occasion.run["run"], **seen})
        session.say(described(one, seen))
    if todo:
        model = optimizer = None
        session.give_memory_back()
        occasion.note_references("after", args.lr)
    session.say(f"{len(todo)} steps into {occasion.path}, {len(occasion.done)} were there before")


def _chosen(args: argparse.Namespace, done: set[Configuration]) -> list[Configuration]:
    lists = {"public": PUBLIC, "hidden": HIDDEN}
    steps = [s for name, steps in lists.items() if args.only in (None, name) for s in steps]
    if args.layers:
        steps = [s for s in steps if s.layers in args.layers]
    steps = sorted(steps, key=lambda s: (s.layers, s.tokens, s.seqlen, s.recompute))
    if args.quick:
        steps = [s for s in steps if s.tokens <= 512][:2]
    return [s for s in steps if s not in done]


if __name__ == "__main__":
    session.run(main)
