"""Settings that hold for the whole process: what the code under test left changed, and undoing it.

One exercise's code must not decide what another one's finds, and in `make test` all of them run in
the student's own process.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules import module as hooks_of_all

GLOBAL_HOOKS = (
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
    "_global_module_registration_hooks",
    "_global_buffer_registration_hooks",
    "_global_parameter_registration_hooks",
)


@dataclass(frozen=True)
class Setting:
    """One of them."""

    name: str  # for a message: "torch's default dtype"
    written: tuple[str, ...]  # what a line that changes it contains
    get: Callable[[], Any]
    put: Callable[[Any], None]
    told: bool = True  # whether leaving it changed is worth a word to the student


def _device() -> str | None:
    # No tensor is made to find out: that would be an operation on the GPU under observation.
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if context is None else str(context.device)


def _hooks() -> dict[str, dict]:
    return {name: dict(getattr(hooks_of_all, name, {})) for name in GLOBAL_HOOKS}


def _put_hooks(before: dict[str, dict]) -> None:
    for name, hooks in before.items():
        now = getattr(hooks_of_all, name, None)
        if now is not None and dict(now) != hooks:
            now.clear()
            now.update(hooks)


def _streams() -> tuple:
    return sys.stdout, sys.stderr


def _put_streams(streams: tuple) -> None:
    sys.stdout, sys.stderr = streams


SETTINGS = (
    Setting(
        "torch's default dtype",
        ("set_default_dtype", "set_default_tensor_type"),
        torch.get_default_dtype,
        torch.set_default_dtype,
    ),
    Setting("torch's default device", ("set_default_device",), _device, torch.set_default_device),
    Setting(
        "whether torch records gradients",
        ("set_grad_enabled",),
        torch.is_grad_enabled,
        torch._C._set_grad_enabled,
    ),
    Setting(
        "whether torch demands deterministic algorithms",
        ("use_deterministic_algorithms",),
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
    ),
    Setting(
        "autograd's anomaly detection",
        ("set_detect_anomaly", "detect_anomaly"),
        torch.is_anomaly_enabled,
        torch.set_anomaly_enabled,
    ),
    Setting("the hooks of all modules", ("register_module_",), _hooks, _put_hooks),
    Setting("the working directory", ("chdir",), os.getcwd, os.chdir),
    Setting(
        "the precision of float32 products",
        ("set_float32_matmul_precision",),
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        told=False,  # a choice that many make on purpose, and that no test feels
    ),
    Setting("standard output", ("stdout",), _streams, _put_streams, told=False),
    Setting(
        "garbage collection",
        ("gc.",),
        gc.isenabled,
        lambda on: gc.enable() if on else gc.disable(),
        told=False,
    ),
)


def now() -> list[Any]:
    """The present values, for `put_back`."""
    return [setting.get() for setting in SETTINGS]


def put_back(before: list[Any]) -> list[Setting]:
    """Undoes what has changed since `before`; returns what it was, as far as it is told."""
    changed = []
    for setting, value in zip(SETTINGS, before, strict=True):
        if setting.get() != value:
            setting.put(value)
            changed.append(setting)
    return [setting for setting in changed if setting.told]


def line_of(setting: Setting, source: str) -> int | None:
    """The first line of `source` that seems to change `setting`."""
    for number, line in enumerate(source.splitlines(), start=1):
        code = line.partition("#")[0]
        if any(words in code for words in setting.written):
            return number
    return None
