"""Code that says "cuda" runs: the device's names are mapped to the CPU, wherever they stand."""

import pytest
import torch
from torch import nn


@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda"), torch.device("cuda:0")])
def test_factories_take_the_device(gpu, device):
    x = torch.zeros(3, device=device)
    for made in (
        x,
        torch.randn(2, device=device),
        torch.arange(3, device=device),
        torch.tensor([1, 2], device=device),
        torch.empty_like(x, device=device),
        torch.full((2,), 1.0, device=device, pin_memory=False),
        x.new_zeros(2, device=device),
        torch.as_tensor([1.0], device=device),
        torch.empty(2, pin_memory=True),
        x.to(device),
        x.to(device, torch.float64),
        x.to(device=device, dtype=torch.bfloat16, non_blocking=True),
    ):
        assert made.device.type == "cpu"


def test_modules_take_the_device(gpu):
    for module in (
        nn.Linear(2, 2, device="cuda"),
        nn.Linear(2, 2).to("cuda"),
        nn.Linear(2, 2).cuda(),
        nn.Linear(2, 2).to("cuda", torch.bfloat16),
        nn.Linear(2, 2, device=gpu.device),
        nn.Linear(2, 2).cpu().cuda(),
    ):
        y = module(torch.ones(1, 2, device="cuda", dtype=module.weight.dtype))
        assert y.shape == (1, 2)


def test_default_devices(gpu):
    with torch.device("cuda"):
        assert torch.zeros(2).device.type == "cpu"
    torch.set_default_device("cuda")
    try:
        assert torch.zeros(2).device.type == "cpu"
    finally:
        torch.set_default_device(None)


def test_generators(gpu):
    made = [
        torch.randn(3, device="cuda", generator=torch.Generator(device=device).manual_seed(5))
        for device in ("cuda", "cpu", gpu.device)
    ]
    assert torch.equal(made[0], made[1])
    assert torch.equal(made[0], made[2])
    assert isinstance(torch.Generator("cuda"), torch.Generator)
    torch.cuda.manual_seed(1)
    torch.cuda.manual_seed_all(1)


def test_what_the_device_says_of_itself(gpu):
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 1
    assert torch.cuda.current_device() == 0
    assert torch.cuda.get_device_name() == torch.cuda.get_device_name(0) == gpu.name == "Round GPU"
    properties = torch.cuda.get_device_properties(0)
    assert (properties.name, properties.total_memory) == ("Round GPU", 2**30)
    assert torch.cuda.is_bf16_supported()
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator().type == "cuda"
    torch.cuda.set_device(0)
    torch.cuda.profiler.start()
    torch.cuda.profiler.stop()
    torch.cuda.cudart().cudaProfilerStart()
    with torch.cuda.device(0):
        torch.cuda.init()
    torch.ones(3).record_stream(torch.cuda.current_stream())


def test_autocast_and_compile_do_no_harm(gpu):
    layer = nn.Linear(2, 2).to("cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert layer(torch.ones(1, 2)).shape == (1, 2)
    with gpu.record(launches=True) as log:
        torch.compile(lambda x: x * 2 + 1, backend="eager")(torch.ones(2))
    assert [entry["name"] for entry in log] == ["aten::ones", "aten::mul", "aten::add"]
