"""The given parts of olmoe/prof.py: telling a backward pass apart, NVTX ranges, the GPU's counters.

`cuda_time` and `annotate` are exercises; the suites test them.
"""

import importlib.util
import math
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils.checkpoint import checkpoint

SOURCE = Path(__file__).resolve().parents[2] / "staff" / "olmoe" / "prof.py"
UUID = "5f1d0c1e-0000-4000-8000-000000000007"
COUNTERS = ("kernel_percent", "memory_percent", "clock_mhz", "power_w")
LOST = {  # which counters a refused query costs
    "nvmlDeviceGetUtilizationRates": {"kernel_percent", "memory_percent"},
    "nvmlDeviceGetClockInfo": {"clock_mhz"},
    "nvmlDeviceGetPowerUsage": {"power_w"},
}


@pytest.fixture
def prof():
    """A fresh copy of the module, so that what it has said already is forgotten."""
    spec = importlib.util.spec_from_file_location("prof_under_test", SOURCE)
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up by name
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        yield module


@pytest.fixture
def ranges(monkeypatch):
    """A GPU that is there and keeps a list of its NVTX ranges."""
    seen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", lambda name: seen.append(name) or 0)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: seen.append("pop") or 0)
    return seen


class TestBackward:
    def test_is_known_from_inside_only(self, prof):
        seen = []
        x = torch.ones(2, requires_grad=True)
        y = x * 2
        y.register_hook(lambda grad: seen.append(prof.in_backward()))
        assert not prof.in_backward()
        y.sum().backward()
        assert seen == [True]
        assert not prof.in_backward()

    def test_is_known_in_a_recomputed_forward(self, prof):
        seen = []

        def forward(x):
            seen.append(prof.in_backward())
            return x.sin()

        x = torch.ones(2, requires_grad=True)
        checkpoint(forward, x, use_reentrant=False).sum().backward()
        assert seen == [False, True]

    def test_does_not_last_when_it_fails(self, prof):
        def fail(grad):
            raise RuntimeError("no")

        y = torch.ones(2, requires_grad=True) * 2
        y.register_hook(fail)
        with pytest.raises(RuntimeError):
            y.sum().backward()
        assert not prof.in_backward()


class TestRanges:
    def test_nest(self, prof, ranges):
        with prof.nvtx_range("outer"), prof.nvtx_range("inner"):
            pass
        assert ranges == ["outer", "inner", "pop", "pop"]

    def test_close_when_the_block_raises(self, prof, ranges):
        with pytest.raises(KeyError), prof.nvtx_range("outer"):
            raise KeyError
        assert ranges == ["outer", "pop"]

    def test_of_a_recomputation_say_so(self, prof, ranges):
        def forward(x):
            with prof.nvtx_range("experts"):
                return x.sin()

        x = torch.ones(2, requires_grad=True)
        checkpoint(forward, x, use_reentrant=False).sum().backward()
        assert ranges == ["experts", "pop", "recompute.experts", "pop"]

    def test_return_nothing(self, prof, ranges):
        """A forward pre-hook that returned something would replace the module's arguments."""
        assert prof.range_push("a") is None
        assert prof.range_pop() is None

    def test_do_nothing_without_a_gpu(self, prof, ranges, monkeypatch):
        """And that is asked anew each time: a virtual GPU may come after the import."""
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        with prof.nvtx_range("a"):
            pass
        assert ranges == []
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        prof.range_push("b")
        assert ranges == ["b"]


class Refused(Exception):
    """Stands for pynvml.NVMLError."""


class FakeNvml:
    """As much of pynvml as is needed, for a machine of two GPUs of which torch uses the second.

    `refuse` names the functions that raise, with what. There is no function for processes: asking
    for one would be an AttributeError, since a container does not know its processes' ids.
    """

    NVMLError = Refused
    NVML_CLOCK_SM = 1

    def __init__(self, refuse: dict[str, str] | None = None, kind: str = "GPU"):
        self.refuse = refuse or {}
        self.kind = kind
        self.opened = 0
        self.asked: list[str] = []

    def __getattr__(self, name):
        answers = {
            "nvmlInit": self._init,
            "nvmlShutdown": self._shutdown,
            "nvmlDeviceGetHandleByUUID": self._handle,
            "nvmlDeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=97, memory=31),
            "nvmlDeviceGetClockInfo": lambda gpu, clock: {self.NVML_CLOCK_SM: 1980}[clock],
            "nvmlDeviceGetPowerUsage": lambda gpu: 650_000,
        }
        if name not in answers:
            raise AttributeError(name)

        def call(*args):
            self.asked.append(name)
            if name in self.refuse:
                raise Refused(self.refuse[name])
            return answers[name](*args)

        return call

    def _init(self):
        self.opened += 1

    def _shutdown(self):
        self.opened -= 1

    def _handle(self, uuid):
        if uuid != f"{self.kind}-{UUID}":
            raise Refused("Not Found")
        return "the second GPU"


@pytest.fixture
def machine(prof, monkeypatch):
    """Makes a machine with the given NVML, or none."""

    def make(nvml):
        monkeypatch.setattr(prof, "pynvml", nvml)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        properties = {0: SimpleNamespace(uuid=UUID)}
        monkeypatch.setattr(torch.cuda, "get_device_properties", properties.__getitem__)
        return nvml

    return make


def wait_until(condition) -> None:
    """For the monitor's thread; gives up after some seconds, and the test then fails."""
    for _ in range(5000):
        if condition():
            return
        threading.Event().wait(0.001)


def monitored(prof, nvml: FakeNvml | None = None) -> dict[str, float]:
    """The counters of a block that lasts until power, the last of them, was asked for twice."""
    before = nvml.asked.count("nvmlDeviceGetPowerUsage") if nvml else 0
    with prof.GpuMonitor(interval_s=0.001, settle_s=0.0) as monitor:
        if nvml:
            wait_until(lambda: nvml.asked.count("nvmlDeviceGetPowerUsage") >= before + 2)
    return asdict(monitor.counters)


class TestCounters:
    def test_are_those_of_the_gpu_that_torch_uses(self, prof, machine, capsys):
        nvml = machine(FakeNvml())
        assert monitored(prof, nvml) == {
            "kernel_percent": 97,
            "memory_percent": 31,
            "clock_mhz": 1980,
            "power_w": 650,
        }
        assert capsys.readouterr().err == ""
        assert nvml.opened == 0  # as many shutdowns as inits

    @pytest.mark.parametrize("reason", ["Not Supported", "Unknown Error", "No Permission"])
    @pytest.mark.parametrize("query", LOST)
    def test_refused_is_unknown_and_not_zero(self, prof, machine, capsys, query, reason):
        lost = LOST[query]
        nvml = machine(FakeNvml({query: reason}))
        for _ in range(2):
            seen = monitored(prof, nvml)
            assert {name for name in COUNTERS if math.isnan(seen[name])} == lost
        said = capsys.readouterr().err.splitlines()
        assert len(said) == len(lost)  # once each, however many samples and blocks
        assert all(reason in line for line in said)
        assert {name for name in COUNTERS if any(name in line for line in said)} == lost

    def test_refused_now_and_then_is_the_mean_of_the_others(self, prof, machine):
        nvml = machine(FakeNvml())
        nvml.refuse["nvmlDeviceGetPowerUsage"] = "Unknown Error"
        with prof.GpuMonitor(interval_s=0.001, settle_s=0.0) as monitor:
            wait_until(lambda: nvml.asked.count("nvmlDeviceGetPowerUsage") >= 1)
            nvml.refuse.clear()
            wait_until(lambda: nvml.asked.count("nvmlDeviceGetPowerUsage") >= 4)
        assert monitor.counters.power_w == 650

    @pytest.mark.parametrize(
        ("nvml", "why"),
        [
            (None, "nvidia-ml-py is not installed"),
            (FakeNvml({"nvmlInit": "NVML Shared Library Not Found"}), "Library Not Found"),
            (FakeNvml({"nvmlDeviceGetHandleByUUID": "Not Found"}), UUID),
        ],
        ids=["no package", "no library", "no such GPU"],
    )
    def test_without_nvml_are_unknown(self, prof, machine, capsys, nvml, why):
        machine(nvml)
        for _ in range(2):
            assert all(map(math.isnan, monitored(prof).values()))
        (said,) = capsys.readouterr().err.splitlines()
        assert why in said
        assert nvml is None or nvml.opened == 0

    def test_without_a_gpu_are_unknown(self, prof, machine, monkeypatch, capsys):
        machine(FakeNvml())
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert all(map(math.isnan, monitored(prof).values()))
        assert "no GPU" in capsys.readouterr().err

    def test_of_a_part_of_a_gpu(self, prof, machine):
        """In MIG mode torch gives the part's UUID, which NVML writes with another prefix."""
        nvml = machine(FakeNvml({"nvmlDeviceGetUtilizationRates": "Not Supported"}, kind="MIG"))
        seen = monitored(prof, nvml)
        assert math.isnan(seen["kernel_percent"])
        assert seen["power_w"] == 650

    def test_of_a_block_too_short_are_unknown(self, prof, machine, capsys):
        """The first second's averages tell of what ran before."""
        nvml = machine(FakeNvml())
        with prof.GpuMonitor() as monitor:
            pass
        assert all(map(math.isnan, asdict(monitor.counters).values()))
        assert "more than 1 s" in capsys.readouterr().err
        assert nvml.opened == 0

    def test_do_not_hide_what_the_block_raises(self, prof, machine):
        nvml = machine(FakeNvml())
        with pytest.raises(KeyError), prof.GpuMonitor():
            raise KeyError
        assert nvml.opened == 0

    def test_are_printed_as_unknown(self, prof):
        line = str(prof.GpuCounters(kernel_percent=99.6, clock_mhz=1923.2))
        assert " ".join(line.split()) == "kernel running 100% memory busy n/a 1923 MHz n/a"


def test_the_real_library_has_what_is_asked_of_it():
    pynvml = pytest.importorskip("pynvml")
    assert issubclass(pynvml.NVMLError, Exception)
    assert isinstance(pynvml.NVML_CLOCK_SM, int)
    for name in (*LOST, "nvmlInit", "nvmlShutdown", "nvmlDeviceGetHandleByUUID"):
        assert callable(getattr(pynvml, name)), name
