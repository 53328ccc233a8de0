"""Opening and closing: everything is put back, whatever happens, and only one GPU is open."""

import copy
import io
import pickle
import random
import threading
import time
import timeit

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from grader.gpu import open_gpu
from grader.gpu.patches import Patches


def attributes():
    """Everything public and private in the places that are patched."""
    owners = (time, timeit, torch, torch.cuda, torch.cuda.memory, torch.cuda.nvtx)
    owners += (torch.cuda.profiler, torch.accelerator, torch.Tensor, torch.autograd)
    owners += (torch.utils._device.DeviceContext,)
    return [dict(vars(owner)) for owner in owners]


@pytest.fixture
def loaded():
    """The virtual GPU's modules are imported, so that what torch loads lazily is there."""
    with open_gpu("virtual"):
        (torch.ones(2, requires_grad=True) * 2).sum().backward()


def test_everything_is_put_back(loaded):
    before = attributes()
    with open_gpu("virtual"):
        assert attributes() != before
    assert attributes() == before
    assert not torch.cuda.is_available() or torch.cuda.device_count()
    x = torch.ones(2)
    with open_gpu("virtual") as gpu:
        pass
    launches = gpu.machine.launches
    x + x
    assert gpu.machine.launches == launches


def test_everything_is_put_back_after_an_error(loaded):
    before = attributes()
    with pytest.raises(KeyError), open_gpu("virtual") as gpu:
        gpu.work(1.0)
        raise KeyError
    assert attributes() == before
    with open_gpu("virtual") as gpu:
        assert gpu.host_ms() == 0


def test_a_second_one_is_refused_and_the_first_goes_on(gpu):
    with pytest.raises(RuntimeError, match="already open"), open_gpu("virtual"):
        pass
    before = gpu.host_ms()
    torch.ones(2)
    assert gpu.host_ms() > before
    assert torch.cuda.is_available()


def test_unknown_tiers_are_refused():
    with pytest.raises(ValueError, match="'virtual' or 'cuda'"), open_gpu("tpu"):
        pass


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_the_real_tier_needs_a_gpu():
    with pytest.raises(RuntimeError, match="no CUDA device"), open_gpu("cuda"):
        pass


def test_objects_of_a_closed_gpu_say_so():
    with open_gpu("virtual"):
        event = torch.cuda.Event()
    with pytest.raises(RuntimeError, match="no virtual GPU is open"):
        event.record()


def test_patches_are_undone_in_reverse():
    class Owner:
        there = 1

    patches = Patches()
    patches.set(Owner, "there", 2)
    patches.set(Owner, "there", 3)
    patches.set(Owner, "new", 4)
    patches.set_if_there(Owner, "absent", 5)
    assert (Owner.there, Owner.new) == (3, 4)
    patches.restore()
    assert Owner.there == 1
    assert not hasattr(Owner, "new")
    assert not hasattr(Owner, "absent")


def test_modules_pickle_and_copy(gpu):
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin[0].weight, model[0].weight)
        assert twin[0].weight.data_ptr() != model[0].weight.data_ptr()
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer)["0.weight"], model[0].weight)


def test_randomness_is_left_alone():
    torch.manual_seed(3)
    random.seed(3)
    expected = torch.randn(4), random.random()
    torch.manual_seed(3)
    random.seed(3)
    with open_gpu("virtual"):
        seen = torch.randn(4), random.random()
    assert torch.equal(expected[0], seen[0])
    assert expected[1] == seen[1]


@settings(deadline=None, max_examples=20, derandomize=True, database=None)
@given(st.lists(st.floats(0.001, 100.0), min_size=1, max_size=20))
def test_hypothesis_runs_inside(durations_ms):
    with open_gpu("virtual") as gpu:
        for ms in durations_ms:
            gpu.work(ms)
        torch.cuda.synchronize()
        assert gpu.host_ms() >= sum(durations_ms) - 1e-3


def test_threads_that_use_the_gpu_do_not_corrupt_it(gpu):
    """Operations of other threads run uncharged; what they ask of the device is served in turn."""

    def run():
        for _ in range(200):
            event = torch.cuda.Event(enable_timing=True)
            gpu.work(0.01)
            event.record()
            torch.cuda.nvtx.range_push("thread")
            torch.ones(3) + 1
            torch.cuda.nvtx.range_pop()

    with gpu.record() as log:
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(200):
            gpu.work(0.01)
            torch.ones(3) + 1
        for thread in threads:
            thread.join()
    torch.cuda.synchronize()
    assert sum(entry["kind"] == "work" for entry in log) == 1000
    assert gpu.machine.launches == 1000 + 400
    assert gpu.host_ms() >= 10.0
    assert gpu.allocated_bytes() == 0
