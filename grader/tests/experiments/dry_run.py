"""Runs an experiment's script end to end on a machine without a GPU: a tiny model, a virtual GPU.

    python -m grader.tests.experiments.dry_run sweep --layers 1 --seqlens 8 --results /tmp/a1

The script is as shipped, with the arguments given.  What it measures is made up by the virtual GPU;
everything else (grid, rows, files, sidecars, plots, messages) is what it would be.
"""

import contextlib
import importlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from unittest import mock

import torch

from grader.gpu import open_gpu
from olmoe.config import OlmoeConfig
from shared.gpus import COURSE_GPU

# Sizes at which a CPU takes no time.  They take the place of a module's own.
TINY_CONFIG = {
    "n_layers": 2,
    "d_model": 32,
    "n_heads": 2,
    "d_expert": 16,
    "n_experts": 4,
    "experts_per_token": 2,
    "vocab_size": 64,
}
TINY = {
    "bench_gemm": {"MS": [1, 2, 4], "LARGE": 16, "GROUP_MS": 0.05},
    "bench_ops": {"SIZES": [2**10, 2**12, 2**14]},
    "regimes": {"LARGE": 16, "GIB": 2**12},
    "routing": {"RANDOM_TOKENS": 16},
}


class History:
    """In place of the CUDA allocator's history: 3 GiB allocated and freed."""

    def __init__(self, entries: int = 6) -> None:
        half = entries // 2
        sizes = [3 * 2**30 // half] * half
        self.entries = [
            *({"action": "alloc", "size": size} for size in sizes),
            *({"action": "free_requested", "size": size} for size in sizes),
            *({"action": "free_completed", "size": size} for size in sizes),
        ]
        self.max_entries = len(self.entries)

    def record(self, enabled: str | None = "all", max_entries: int = 0, **_: object) -> None:
        self.max_entries = max_entries or self.max_entries

    def snapshot(self) -> dict:
        return {"device_traces": [self.entries[-self.max_entries :]]}


def tiny_config(**changes: int) -> OlmoeConfig:
    return OlmoeConfig(**{**TINY_CONFIG, **changes})


@contextlib.contextmanager
def small_world(script: str, sheet: object = COURSE_GPU) -> Iterator[object]:
    """The script's module, in a process that has a virtual GPU and in which the model is tiny."""
    history = History()
    with contextlib.ExitStack() as undo:
        gpu = undo.enter_context(open_gpu("virtual", sheet))
        enter = undo.enter_context
        module = importlib.import_module(f"a1.{script}")
        session = importlib.import_module("a1.session")
        for each in (module, session):
            if hasattr(each, "OlmoeConfig"):
                enter(mock.patch.object(each, "OlmoeConfig", tiny_config))
        for name, value in TINY.get(script, {}).items():
            enter(mock.patch.object(module, name, value))
        memory = torch.cuda.memory
        enter(mock.patch.object(memory, "_record_memory_history", history.record))
        enter(mock.patch.object(memory, "_snapshot", history.snapshot))
        yield SimpleNamespace(main=module.main, session=session, gpu=gpu, module=module)


def run(script: str, *arguments: str, sheet: object = COURSE_GPU) -> None:
    """Run `a1/SCRIPT.py ARGUMENTS`.  Raises SystemExit as the script does."""
    with small_world(script, sheet) as world:
        path = world.module.__file__
        with mock.patch.object(sys, "argv", [path, *arguments]):
            world.session.run(world.main)


if __name__ == "__main__":
    run(sys.argv[1], *sys.argv[2:])
