"""What of the real tier can be tested without a GPU: that it listens, and that it lets go.

The rest is checked on a GPU by `python -m grader.gpu.real`; the same rows run here virtually.
"""

import sys

import pytest
import torch

from grader.gpu import check, real
from grader.gpu.patches import Patches


@pytest.fixture
def listening():
    patches = Patches()
    real._listen(patches)
    yield
    patches.restore()


def test_the_host_s_own_tensors_are_not_logged(listening):
    x = torch.tensor([1.0, 2.0])
    with real._recorder().record() as log:
        assert x.tolist() == [1.0, 2.0]
        assert x.sum().item() == int(x.sum()) == float(x.cpu().sum()) == 3
        assert bool(x[0])
        assert [10, 20][torch.tensor(1)] == 20
        assert x.numpy().sum() == 3
        assert "2." in repr(x.to(torch.float64))
    assert log == []


def test_everything_is_put_back():
    owners = (torch.Tensor, torch.cuda, torch.cuda.nvtx, torch.cuda.Event, torch.cuda.Stream)
    before = [dict(vars(owner)) for owner in owners]
    patches = Patches()
    real._listen(patches)
    assert [dict(vars(owner)) for owner in owners] != before
    patches.restore()
    assert [dict(vars(owner)) for owner in owners] == before
    assert int(torch.tensor(3)) == 3


def test_a_call_within_a_wrapped_call_is_not_an_entry_of_its_own(monkeypatch):
    calls = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append("made"))
    recorder, patches = real._recorder(), Patches()
    real._listen(patches)
    try:
        with recorder.record() as log:
            with recorder.within():
                torch.cuda.synchronize()
            torch.cuda.synchronize()
    finally:
        patches.restore()
    assert [entry["name"] for entry in log] == ["torch.cuda.synchronize"]
    assert len(calls) == 2


class OnDevice:
    """Stands for a CUDA tensor; its `to` leads to the host unless told a dtype."""

    is_cuda = True

    def to(self, where, non_blocking=False):
        return self if where == "float" else torch.zeros(1)


def test_reads_of_the_device_are_logged_once_whatever_they_call():
    recorder = real._recorder()
    item = real._reading(recorder, lambda x: 5, "item")
    tolist = real._reading(recorder, lambda x: [item(x), item(x)], "tolist")
    to = real._reading(recorder, OnDevice.to, "to")
    x = OnDevice()
    with recorder.record() as log:
        assert tolist(x) == [5, 5]
        assert item(x) == 5
        to(x, "float")
        to(x, "cpu", non_blocking=True)
        to(x, "cpu")
    assert [(entry["kind"], entry["name"]) for entry in log] == [
        ("synchronize", "tolist"),
        ("synchronize", "item"),
        ("synchronize", "to"),
    ]


def test_the_self_check_holds_on_the_virtual_tier(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["check", "virtual"])
    assert check.main() == 0
    assert "WRONG" not in capsys.readouterr().out
