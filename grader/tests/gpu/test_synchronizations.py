"""Everything that brings data to the host waits for the device, and the log says what it was."""

import numpy as np
import pytest
import torch

CAUSES = {
    "item": [
        lambda x: x.sum().item(),
        lambda x: bool(x.sum() > 0),
        lambda x: int(x.sum()),
        lambda x: float(x.sum()),
        lambda x: f"{x.sum():.2f}",
        lambda x: 1 if x.any() else 0,
        lambda x: [0, 1, 2][x.sum().long() * 0],
    ],
    "cpu": [lambda x: x.cpu()],
    "to": [
        lambda x: x.to("cpu"),
        lambda x: x.to(device="cpu"),
        lambda x: x.to("cpu", torch.float64),
    ],
    "tolist": [lambda x: x.tolist()],
    "numpy": [lambda x: x.numpy(), np.asarray],
    "repr": [repr, str],
    "nonzero": [lambda x: x.nonzero(), torch.nonzero, lambda x: torch.where(x > 0)],
    "masked_select": [lambda x: x.masked_select(x > 0)],
    "index": [lambda x: x[x > 0]],
    "index_put_": [lambda x: x.index_put_((x > 0,), torch.tensor([1.0, 1.0]))],
    "equal": [lambda x: torch.equal(x, x)],
    "_unique2": [lambda x: x.unique()],
    "torch.cuda.synchronize": [
        lambda x: torch.cuda.synchronize(),
        lambda x: torch.accelerator.synchronize(),
    ],
    "Stream.synchronize": [lambda x: torch.cuda.current_stream().synchronize()],
    "Event.synchronize": [lambda x: torch.cuda.current_stream().record_event().synchronize()],
}


@pytest.mark.parametrize(
    ("cause", "run"), [(cause, run) for cause, runs in CAUSES.items() for run in runs]
)
def test_it_waits(gpu, cause, run):
    x = torch.tensor([1.0, 2.0], device="cuda")
    gpu.work(20.0)
    with gpu.record() as log:
        run(x)
    waits = [entry for entry in log if entry["kind"] == "synchronize"]
    assert [entry["name"] for entry in waits] == [cause]
    assert waits[0]["waited_ms"] > 19
    assert gpu.host_ms() == pytest.approx(20.0, abs=0.1)


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x.to(x.device),
        lambda x: x.to(torch.bfloat16),
        lambda x: x.to("cuda"),
        lambda x: x.cuda(),
        lambda x: x.to("cpu", non_blocking=True),
        lambda x: x.topk(1),
        lambda x: x.index_select(0, torch.zeros(1, dtype=torch.long)),
        lambda x: x.masked_fill(x > 0, 1.0),
        lambda x: torch.where(x > 0, x, 0),
        lambda x: x.shape[0] + x.numel(),
        lambda x: x.detach().data_ptr(),
    ],
)
def test_it_does_not_wait(gpu, run):
    x = torch.tensor([1.0, 2.0], device="cuda")
    gpu.work(20.0)
    with gpu.record() as log:
        run(x)
    assert log == []
    assert gpu.host_ms() < 1


def test_the_name_of_the_device_is_not_the_host(gpu):
    """On this tier both are "cpu" to torch: gpu.device is where the GPU's tensors are."""
    x = torch.ones(3, device=gpu.device)
    with gpu.record() as log:
        assert x.to(gpu.device) is x
        torch.nn.Linear(2, 2).to(gpu.device)
    assert log == []


def test_what_is_on_the_host_already_is_read_for_nothing(gpu):
    x = torch.ones(3, device="cuda").cpu()
    gpu.work(20.0)
    with gpu.record() as log:
        x.tolist(), x.numpy(), x.sum().item(), (x + 1).cpu()
    assert log == []


def test_moving_back_to_the_device_waits_unless_told(gpu):
    x = torch.ones(3, device="cuda").cpu()
    with gpu.record() as log:
        x.to("cuda", non_blocking=True)
        x.cuda(non_blocking=True)
        x.pin_memory().to("cuda", non_blocking=True)
        assert log == []
        x.to("cuda")
        x.cuda()
    assert [entry["name"] for entry in log] == ["to", "cuda"]


@pytest.mark.parametrize(
    "backward",
    [
        lambda loss, x: loss.backward(),
        lambda loss, x: torch.autograd.backward(loss),
        torch.autograd.grad,
        lambda loss, x: loss.backward(torch.ones(()), inputs=[x]),
        lambda loss, x: loss.backward(gradient=torch.ones(()), retain_graph=True),
    ],
)
def test_it_waits_in_the_backward_pass_too(gpu, backward):
    x = torch.ones(2, device="cuda", requires_grad=True)
    y = x * 2

    def hook(grad):
        grad.tolist(), grad.cpu(), grad.sum().item()

    y.register_hook(hook)
    with gpu.record() as log:
        backward((y * y).sum(), x)
    assert [entry["name"] for entry in log] == ["tolist", "cpu", "item"]


def test_adamw_reads_its_own_step_count_without_waiting(gpu):
    weights = [torch.ones(3, requires_grad=True) for _ in range(2)]
    for weight in weights:
        weight.grad = torch.ones(3)
    for arguments in ({}, {"foreach": True}, {"fused": True}):
        optimizer = torch.optim.AdamW(weights, **arguments)
        with gpu.record() as log:
            optimizer.step()
            optimizer.step()
        assert log == [], arguments
