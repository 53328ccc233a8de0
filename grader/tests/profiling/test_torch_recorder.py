"""The recorder that stands in for nsys: projection, files, and a real run of the profiler."""

import csv
import gzip
import json
import threading

import pytest
import torch
from torch import nn

from a1 import ranges, torch_recorder
from a1.nsys_export import CALL_COLUMNS, KERNEL_COLUMNS, read_ranges, read_report
from a1.recording import Device, ProjectedRange, RecordingError
from a1.torch_recorder import MARK, Trace, project, write_reports
from shared import artifacts

from .sample import RANGE_HEADER, annotation, launch, mark, operation, torch_trace


def trace_of(*events, **document):
    return Trace.of({"traceEvents": list(events), **document})


def projected(trace):
    return [p.as_range() for p in project(trace)]


# --- projection -----------------------------------------------------------------------------------


def test_an_operation_belongs_to_every_range_open_at_its_launch():
    """Kernels run long after their range has closed: the launch decides, not the clock."""
    trace = trace_of(
        mark("forward", 0, 100),
        mark("layers.0", 10, 50),
        launch(1, 5),
        launch(2, 20),
        launch(3, 40),
        operation(1, 200, 210),
        operation(2, 300, 320),
        operation(3, 400, 440),
    )
    assert projected(trace) == [
        ProjectedRange("forward", 200_000, 440_000, 3),
        ProjectedRange("layers.0", 300_000, 440_000, 2),
    ]


def test_another_threads_launches_are_not_in_the_range():
    """A backward pass: its kernels are launched by a thread that has no range open."""
    trace = trace_of(
        mark("backward", 0, 100),
        launch(1, 1),
        *(launch(i, 10 + i, tid=8) for i in range(2, 7)),
        *(operation(i, 100 * i, 100 * i + 50) for i in range(1, 7)),
    )
    assert projected(trace) == [ProjectedRange("backward", 100_000, 150_000, 1)]


def test_ranges_of_the_other_thread_are_its_own():
    trace = trace_of(
        mark("backward", 0, 100),
        mark("recompute.layers.1", 20, 60, tid=8),
        mark("recompute.experts", 30, 50, tid=8),
        launch(1, 25, tid=8),
        launch(2, 40, tid=8),
        launch(3, 70, tid=8),
        *(operation(i, 100 * i, 100 * i + 50) for i in (1, 2, 3)),
    )
    found = project(trace)
    assert [(p.range.name, p.gpu_ops) for p in found] == [
        ("recompute.layers.1", 2),
        ("recompute.experts", 1),
    ]
    assert found[1].parent is found[0]


def test_copies_and_memsets_are_operations():
    trace = trace_of(
        mark("optimizer", 0, 100),
        launch(1, 10, name="cudaMemsetAsync"),
        launch(2, 20, name="cudaMemcpyAsync"),
        launch(3, 30),
        operation(1, 200, 201, cat="gpu_memset"),
        operation(2, 210, 220, cat="gpu_memcpy"),
        operation(3, 230, 240),
    )
    assert projected(trace) == [ProjectedRange("optimizer", 200_000, 240_000, 3)]
    assert len(trace.gpu_ops()) == 3


def test_siblings_do_not_share():
    trace = trace_of(
        mark("layers.0", 0, 10), mark("layers.1", 10.001, 20), launch(1, 5), launch(2, 15),
        operation(1, 100, 150), operation(2, 150, 170),
    )  # fmt: skip
    assert [(r.name, r.gpu_ops) for r in projected(trace)] == [("layers.0", 1), ("layers.1", 1)]


def test_a_range_that_launched_nothing_is_not_projected():
    trace = trace_of(mark("forward", 0, 10), mark("idle", 20, 30), launch(1, 5), operation(1, 7, 9))
    assert [r.name for r in projected(trace)] == ["forward"]


def test_an_operation_nobody_is_known_to_have_launched():
    trace = trace_of(
        mark("forward", 0, 10), launch(1, 5), operation(1, 7, 9), operation(2, 11, 12),
        operation(0, 13, 14),
    )  # fmt: skip
    assert [r.gpu_ops for r in projected(trace)] == [1]
    assert len(trace.gpu_ops()) == 3


def test_a_launch_that_the_profiler_did_not_note():
    """The driver has calls it does not know; the torch operation around it is known."""
    product = annotation("aten::mm", 5, 8, tid=8) | {"cat": "cpu_op"}
    product["args"]["External id"] = 42
    unknown = operation(1, 20, 30)
    unknown["args"]["External id"] = 42
    trace = trace_of(
        mark("forward", 0, 10), mark("recompute.layers.0", 0, 10, tid=8), product, unknown
    )
    assert [(r.name, r.gpu_ops) for r in projected(trace)] == [("recompute.layers.0", 1)]


def test_a_driver_call_inside_a_runtime_call_counts_once():
    inner = launch(1, 6, name="cuLaunchKernel") | {"cat": "cuda_driver"}
    trace = trace_of(mark("forward", 0, 10), launch(1, 5), inner, operation(1, 20, 30))
    assert [r.gpu_ops for r in projected(trace)] == [1]


def test_torchs_own_annotations_are_not_ranges():
    """torch marks optimizers and profiler steps by itself; nsys does not see those."""
    trace = trace_of(
        annotation("Optimizer.step#AdamW.step", 0, 10), annotation("ProfilerStep#1", 0, 50),
        mark("optimizer", 0, 10), launch(1, 5), operation(1, 20, 30),
    )  # fmt: skip
    assert [r.name for r in projected(trace)] == ["optimizer"]


def test_times_of_a_real_clock_keep_their_nanoseconds():
    base = 5_179_630_956_735.588  # microseconds, as a trace has them
    trace = trace_of(mark("forward", base, base + 10), launch(1, base + 1),
                     operation(1, base + 20.123, base + 30.456))  # fmt: skip
    (forward,) = projected(trace)
    assert forward.start_ns == pytest.approx(20_123, abs=2)
    assert forward.end_ns - forward.start_ns == pytest.approx(10_333, abs=2)


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path):
    """results and reports with this recording, called `train`."""
    path = tmp_path / "reports" / f"train{torch_recorder.SUFFIX}"
    path.parent.mkdir()
    with gzip.open(path, "wt") as out:
        json.dump(torch_trace(), out)
    write_reports(Trace.read(path), "train", tmp_path / "results")
    return tmp_path / "results", tmp_path / "reports"


def test_the_files_have_nsyss_columns_and_name_the_recorder(recorded):
    results, _ = recorded
    path = results / "train_nvtx_gpu_proj_trace.csv"
    header, first = path.read_text().split("\n")[:2]
    assert header.split(",") == [*RANGE_HEADER, "Recorder"]
    assert first.startswith(":step,")
    assert first.endswith(",torch.profiler 2.11.0")
    assert ranges.recorded_by(path) == "torch.profiler 2.11.0"
    for kind in ("nvtx_gpu_proj_trace", "cuda_gpu_kern_sum", "cuda_api_sum"):
        assert not artifacts.read(results / f"train_{kind}.csv").empty


def test_the_files_say_what_the_trace_says(recorded):
    results, reports = recorded
    trace = Trace.read(reports / f"train{torch_recorder.SUFFIX}")
    assert read_ranges(results / "train_nvtx_gpu_proj_trace.csv") == projected(trace)
    kernels = {
        k["Name"]: (k["Instances"], k["Total Time"])
        for k in read_report(results / "train_cuda_gpu_kern_sum.csv", KERNEL_COLUMNS)
    }
    assert kernels == {
        "gemm": (58, 58 * 80_000),
        "backward gemm": (40, 40 * 80_000),
        "void fused_adam<int, 4>": (12, 12 * 80_000),
    }
    calls = read_report(results / "train_cuda_api_sum.csv", CALL_COLUMNS)
    assert [(c["Name"], c["Num Calls"]) for c in calls] == [("cudaLaunchKernel", 110)]


def test_nesting_is_written_as_nsys_writes_it(recorded):
    results, _ = recorded
    with (results / "train_nvtx_gpu_proj_trace.csv").open(newline="") as source:
        rows = list(csv.DictReader(source))
    assert [(r["Name"], r["Lvl"], r["NumChild"], r["RangeStack"]) for r in rows[:4]] == [
        (":step", "0", "2", ":1"),
        (":forward", "1", "2", ":1:2"),
        (":layers.0", "2", "0", ":1:2:3"),
        (":layers.1", "2", "0", ":1:2:4"),
    ]


def test_the_summary_of_such_a_recording(recorded, capsys):
    results, reports = recorded
    ranges.summarize_recording("train", results, reports)
    printed = capsys.readouterr().out
    assert printed.startswith("NVIDIA H200: 132 SMs, 1980 MHz\n")
    assert "(no GPU metrics in this recording)\n(recorded with torch.profiler 2.11.0)" in printed
    frame = artifacts.read(results / "train_ranges.csv").set_index("range")
    assert frame.loc["step", "gpu_ops"] == 26
    assert frame.loc["layers.*", "gpu_ops"] == 20
    assert frame.loc["layers.*", "instances"] == 2
    assert frame.loc["recompute.layers.*", "gpu_ops"] == 9
    assert frame.loc["(backward)", "gpu_ops"] == 8 + 12
    # Spans: 55 operations, one every 100 us; each range takes its own up to the next one's start
    # but for the last 20 us, which are the idle time before the next range.
    assert frame.loc["step", "gpu_ms_per_step"] == pytest.approx(5.48)
    assert frame.loc["(backward)", "gpu_ms_per_step"] == pytest.approx(0.82 + 1.22, abs=1e-3)


@pytest.mark.parametrize(
    "content",
    [None, b"", b"no gzip", gzip.compress(b"[]", mtime=0), gzip.compress(b"{", mtime=0)],
    ids=["no file", "empty", "no gzip", "no events", "cut off"],
)
def test_a_trace_that_is_none(content, tmp_path):
    path = tmp_path / f"x{torch_recorder.SUFFIX}"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RecordingError, match=r"x\.trace\.json\.gz"):
        Trace.read(path)


def test_a_trace_without_kernels_is_an_error(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"traceEvents": [mark("forward", 0, 10), launch(1, 2)]}))
    with pytest.raises(RecordingError, match="no kernel ran"):
        Trace.read(path)


# --- the profiler itself, on the CPU --------------------------------------------------------------


@pytest.fixture
def cpu_nvtx(monkeypatch):
    """NVTX calls, which a CPU build of torch refuses, noted and let through."""
    calls = []
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", lambda msg: calls.append(msg) or 0)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: calls.append(None) or 0)
    return calls


def test_a_real_run_of_the_profiler(cpu_nvtx, tmp_path):
    """Ranges on the CPU, with a kernel made up for every matrix product that the profiler saw."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    batch = torch.randn(4, 8)

    def step():
        torch.cuda.nvtx.range_push("step")
        torch.cuda.nvtx.range_push("forward")
        with torch.cuda.nvtx.range("layers.0"):
            hidden = model[0](batch)
        loss = model[1](hidden).sum()
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_push("backward")
        loss.backward()
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_pop()

    def two_steps():
        step()
        step()

    path = tmp_path / "new folder" / f"x{torch_recorder.SUFFIX}"
    torch_recorder.record(two_steps, step, path)
    assert cpu_nvtx.count("step") == 3  # NVTX itself still sees all of them
    assert cpu_nvtx.count(None) == 12

    with gzip.open(path, "rt") as source:
        document = json.load(source)
    products = [
        e for e in document["traceEvents"] if e.get("cat") == "cpu_op" and e["name"] in
        ("aten::addmm", "aten::mm")
    ]  # fmt: skip
    last = max(e["ts"] + e["dur"] for e in document["traceEvents"] if "dur" in e)
    for i, product in enumerate(products, start=1):
        middle = product["ts"] + product["dur"] / 2
        document["traceEvents"] += [
            launch(i, middle, tid=product["tid"]) | {"pid": product["pid"]},
            operation(i, last + 10 * i, last + 10 * i + 8),
        ]
    trace = Trace.of(document)
    assert trace.recorder == f"torch.profiler {torch.__version__}"
    counts = [(r.name, r.gpu_ops) for r in projected(trace)]
    # Forward: two products. Backward: of the second layer, two (weight and input); of the first,
    # one, since its input needs no gradient.
    assert counts == [("step", 5), ("forward", 2), ("layers.0", 1), ("backward", 3)] * 2


def test_ranges_of_several_threads_do_not_mix(cpu_nvtx):
    """Each thread closes what it opened, in whatever order the threads run."""
    closed_by, both_open = {}, threading.Barrier(2)

    class Mirror:
        def __init__(self, name):
            self.name = name.removeprefix(MARK)

        def __enter__(self):
            pass

        def __exit__(self, *_):
            closed_by[self.name] = threading.current_thread().name

    def work():
        torch.cuda.nvtx.range_push(threading.current_thread().name)
        both_open.wait(timeout=10)
        torch.cuda.nvtx.range_pop()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.profiler, "record_function", Mirror)
        with torch_recorder.nvtx_seen_by_profiler():
            threads = [threading.Thread(target=work, name=name) for name in "ab"]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert closed_by == {"a": "a", "b": "b"}


def test_nvtx_is_left_as_it_was(cpu_nvtx):
    push, pop = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
    with pytest.raises(KeyError), torch_recorder.nvtx_seen_by_profiler():
        torch.cuda.nvtx.range_push("open")
        raise KeyError
    assert (torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop) == (push, pop)


def test_the_gpu_as_torch_describes_it(monkeypatch):
    """Bandwidth: two transfers a clock, as many bits as the bus is wide."""

    class Properties:
        name = "NVIDIA H200"
        multi_processor_count = 132
        clock_rate = 1_980_000
        memory_clock_rate = 3_201_000
        memory_bus_width = 6016
        L2_cache_size = 60 * 2**20

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    assert (
        str(torch_recorder.current_device())
        == "NVIDIA H200: 132 SMs, 1980 MHz, memory bandwidth 4814 GB/s, L2 cache 60 MiB"
    )
    for gone in ("clock_rate", "memory_clock_rate", "L2_cache_size"):
        monkeypatch.delattr(Properties, gone)
    assert torch_recorder.current_device() == Device("NVIDIA H200", 132)
