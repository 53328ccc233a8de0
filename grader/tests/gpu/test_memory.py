"""The ledger of device memory, against sums done by hand. A block is a multiple of 512 bytes."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from grader.gpu import open_gpu

KIB = 1024


def kib(n):
    """A tensor of n KiB."""
    return torch.zeros(n * 256, device="cuda")


def test_a_tensor_counts_while_it_lives(gpu):
    a = kib(4)
    assert torch.cuda.memory_allocated() == gpu.allocated_bytes() == 4 * KIB
    b = kib(2)
    assert gpu.allocated_bytes() == 6 * KIB
    del a
    assert gpu.allocated_bytes() == 2 * KIB
    del b
    assert gpu.allocated_bytes() == 0
    assert torch.cuda.max_memory_allocated() == gpu.peak_bytes() == 6 * KIB


def test_small_blocks_are_rounded_up(gpu):
    keep = [torch.zeros(1), torch.zeros(129)]  # 4 and 516 bytes
    assert gpu.allocated_bytes() == 512 + 1024
    assert len(keep) == 2


def test_views_count_once_and_keep_their_base(gpu):
    base = kib(8)
    views = [base.view(2, -1), base[:10], base.t(), base.detach(), base.expand(3, -1)]
    assert gpu.allocated_bytes() == 8 * KIB
    del base
    assert gpu.allocated_bytes() == 8 * KIB
    views.clear()
    assert gpu.allocated_bytes() == 0


def test_in_place_operations_allocate_nothing(gpu):
    a, b = kib(4), kib(4)
    gpu.reset_peak()
    a.add_(b).mul_(2).relu_()
    assert gpu.peak_bytes() == gpu.allocated_bytes() == 8 * KIB


def test_resizing_in_place_is_followed(gpu):
    a = kib(4)
    a.resize_(4 * KIB)
    assert gpu.allocated_bytes() == 16 * KIB
    torch.ones(8 * KIB, out=a)
    assert gpu.allocated_bytes() == 32 * KIB


def test_the_peak_holds_temporaries(gpu):
    a = kib(4)
    torch.cuda.reset_peak_memory_stats()
    b = ((a + 1) * 2).sum()  # a + 1 dies as soon as it is doubled
    assert torch.cuda.max_memory_allocated() == 12 * KIB
    assert gpu.allocated_bytes() == 4 * KIB + 512
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == 4 * KIB + 512
    del b


def test_what_autograd_keeps_counts_until_backward(gpu):
    w = kib(4).requires_grad_()
    x = w.exp()  # keeps its result
    y = x.sin()  # keeps x
    del x
    z = y.sum()  # keeps nothing: y dies with its name
    del y
    assert gpu.allocated_bytes() == 4 * KIB + 4 * KIB + 512
    z.backward()
    del z
    assert gpu.allocated_bytes() == 4 * KIB + 4 * KIB  # w and its gradient
    w.grad = None
    assert gpu.allocated_bytes() == 4 * KIB


class Block(nn.Module):
    """Keeps its input's exp and that one's exp: two activations of its input's size."""

    def forward(self, x):
        return x.exp().exp()


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_recomputation_keeps_only_inputs(gpu, use_reentrant):
    def alive_bytes(recompute):
        x = kib(4).requires_grad_()
        y = x
        for _ in range(5):
            y = checkpoint(Block(), y, use_reentrant=use_reentrant) if recompute else Block()(y)
        return gpu.allocated_bytes()

    assert alive_bytes(recompute=False) == (1 + 10) * 4 * KIB
    assert alive_bytes(recompute=True) == (1 + 5) * 4 * KIB


def test_a_step_leaves_weights_gradients_and_moments(gpu):
    model = nn.Linear(64, 64, bias=False).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.ones(2, 64, device="cuda")).sum().backward()
    optimizer.step()
    weight, step_count = 64 * 64 * 4, 512
    assert gpu.allocated_bytes() == 4 * weight + step_count
    optimizer.zero_grad()
    assert gpu.allocated_bytes() == 3 * weight + step_count


def test_what_was_there_before_counts_once_adopted():
    model = nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.ones(1, 64)).sum().backward()
    optimizer.step()
    with open_gpu("virtual") as gpu:
        model.weight.detach().view(-1).mul_(1)
        assert gpu.allocated_bytes() == 0
        gpu.adopt(model)
        assert gpu.allocated_bytes() == 2 * (64 * 64 + 64 + 64) * 4  # bias takes 512 bytes
        gpu.adopt([model, {"weight": model.weight}])
        assert gpu.allocated_bytes() == 2 * (64 * 64 + 128) * 4
        gpu.adopt(optimizer)
        assert gpu.allocated_bytes() == 4 * (64 * 64 + 128) * 4 + 2 * 512


def test_what_is_on_the_host_does_not_count(gpu):
    a = kib(4)
    b = a.cpu()
    assert gpu.allocated_bytes() == 4 * KIB
    c = b.cuda()
    assert gpu.allocated_bytes() == 8 * KIB
    assert b.data_ptr() not in (a.data_ptr(), c.data_ptr())


def test_a_storage_of_the_host_leaves_no_trace_behind(gpu):
    """Entries are kept by identity, which Python gives to a new object once the old one is gone."""
    keep = []
    for _ in range(50):
        torch.tensor(1.0)  # the host's, and gone at once
        keep.append(kib(1))
    assert gpu.allocated_bytes() == 50 * KIB


def test_more_than_the_device_has_is_out_of_memory(gpu):
    with pytest.raises(torch.OutOfMemoryError, match=r"virtual GPU has 1\.00 GiB"):
        torch.empty(2**30 + 1, dtype=torch.uint8)
    assert gpu.allocated_bytes() == 0
    with pytest.raises(torch.cuda.OutOfMemoryError):
        torch.empty(2**31, dtype=torch.uint8)


def test_the_allocator_keeps_what_was_freed_until_told(gpu):
    a = torch.empty(5 * 2**20, dtype=torch.uint8)
    del a
    assert torch.cuda.memory_reserved() == 6 * 2**20
    free, total = torch.cuda.mem_get_info()
    assert (free, total) == (2**30 - 6 * 2**20, 2**30)
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0
    assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == 5 * 2**20


def test_copies_of_modules_count(gpu):
    model = nn.Linear(64, 64, bias=False)
    twin = copy.deepcopy(model)
    assert gpu.allocated_bytes() == 2 * 64 * 64 * 4
    del model
    assert gpu.allocated_bytes() == 64 * 64 * 4
    assert twin.weight.shape == (64, 64)
