"""What holds for the whole process is put back, and the student learns where it was changed."""

from __future__ import annotations

import os
import sys

import pytest
import torch
from torch.nn.modules import module as hooks_of_all

from ...suite import defaults
from ...suite.backend import InProcess


def leave_a_hook():
    hooks_of_all.register_module_forward_hook(lambda *_: None)


CHANGES = {
    "torch's default dtype": lambda: torch.set_default_dtype(torch.float64),
    "torch's default device": lambda: torch.set_default_device("meta"),
    "whether torch records gradients": lambda: torch.set_grad_enabled(False),
    "whether torch demands deterministic algorithms": lambda: torch.use_deterministic_algorithms(
        True
    ),
    "autograd's anomaly detection": lambda: torch.autograd.set_detect_anomaly(True),
    "the hooks of all modules": leave_a_hook,
    "the working directory": lambda: os.chdir("/"),
    "the precision of float32 products": lambda: torch.set_float32_matmul_precision("high"),
    "standard output": lambda: setattr(sys, "stdout", None),
    "garbage collection": lambda: __import__("gc").disable(),
}


def test_every_setting_is_tried():
    assert set(CHANGES) == {setting.name for setting in defaults.SETTINGS}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.filterwarnings("ignore")
def test_a_change_is_put_back_and_named(name):
    before = defaults.now()
    try:
        CHANGES[name]()
    finally:
        told = defaults.put_back(before)
    assert defaults.now() == before
    assert [s.name for s in told] == [
        s.name for s in defaults.SETTINGS if s.name == name and s.told
    ]
    assert defaults.put_back(before) == []


def test_a_tensor_made_afterwards_is_an_ordinary_one():
    before = defaults.now()
    CHANGES["torch's default dtype"](), CHANGES["torch's default device"]()
    defaults.put_back(before)
    made = torch.ones(2)
    assert (made.dtype, made.device.type) == (torch.float32, "cpu")


def test_hooks_that_were_there_stay():
    handle = hooks_of_all.register_module_forward_hook(lambda *_: None)
    try:
        before = defaults.now()
        leave_a_hook()
        defaults.put_back(before)
        assert len(hooks_of_all._global_forward_hooks) == 1
    finally:
        handle.remove()


def test_the_line_is_found_outside_of_comments():
    dtype = defaults.SETTINGS[0]
    source = "# set_default_dtype\n\nimport torch\ntorch.set_default_dtype(torch.half)\n"
    assert defaults.line_of(dtype, source) == 4
    assert defaults.line_of(dtype, "import torch\n") is None


def test_a_call_that_leaves_something_changed_disturbs_no_later_one(tmp_path):
    """As in `make test`, where all tests share the student's process."""
    folder = tmp_path / "a1"
    folder.mkdir()
    (folder / "perfmodel.py").write_text(
        "import torch\n\n\ndef gemm_flops(m, k, n):\n"
        "    torch.set_default_dtype(torch.float64)\n    torch.set_grad_enabled(False)\n"
        "    return 1\n\n\ndef gemm_bytes(m, k, n):\n"
        "    return repr((torch.get_default_dtype(), torch.is_grad_enabled()))\n"
    )
    backend = InProcess([tmp_path], "virtual", tmp_path)
    first = backend.observe("perfmodel.values", {"function": "gemm_flops", "calls": [[1, 2, 3]]})
    assert first.value == [1]
    assert first.left == (
        "a1/perfmodel.py, line 5: torch's default dtype was left changed when the call was over: "
        "put it back.",
        "a1/perfmodel.py, line 6: whether torch records gradients was left changed when the call "
        "was over: put it back.",
    )
    then = backend.observe("perfmodel.values", {"function": "gemm_bytes", "calls": [[1, 2, 3]]})
    assert then.value == ["(torch.float32, True)"] and then.left == ()
