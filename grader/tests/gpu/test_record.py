"""The log: ranges, events, synchronizations and work, in order."""

import pytest
import torch


def kinds(log):
    return [(entry["kind"], entry["name"]) for entry in log]


def test_ranges_nest_and_name_what_they_close(gpu):
    with gpu.record() as log:
        assert torch.cuda.nvtx.range_push("outer") == 0
        with torch.cuda.nvtx.range("layer {}", 3):
            torch.cuda.nvtx.mark("here")
        assert torch.cuda.nvtx.range_pop() == 0
        assert torch.cuda.nvtx.range_pop() < 0
    assert kinds(log) == [
        ("range_push", "outer"),
        ("range_push", "layer 3"),
        ("mark", "here"),
        ("range_pop", "layer 3"),
        ("range_pop", "outer"),
        ("range_pop", ""),
    ]


def test_a_range_is_closed_when_its_body_raises(gpu):
    with gpu.record() as log, pytest.raises(KeyError), torch.cuda.nvtx.range("a"):
        raise KeyError
    assert kinds(log) == [("range_push", "a"), ("range_pop", "a")]


def test_entries_say_when_the_host_and_the_device_got_there(gpu):
    with gpu.record() as log:
        event = torch.cuda.Event()
        gpu.work(5.0, name="slow layer")
        event.record()
        gpu.sync()
    work, record, wait = log
    assert kinds(log) == [
        ("work", "slow layer"),
        ("event_record", "event"),
        ("synchronize", "gpu.sync"),
    ]
    assert work["duration_ms"] == 5.0
    assert record["host_ms"] < 0.1
    assert record["device_ms"] == pytest.approx(5.0, abs=0.01)
    assert wait["waited_ms"] == pytest.approx(5.0, abs=0.01)


def test_events_are_told_apart(gpu):
    first, second = torch.cuda.Event(), torch.cuda.Event()
    with gpu.record() as log:
        for event in (first, second, first):
            event.record()
    a, b, c = (entry["event"] for entry in log)
    assert a == c != b


def test_launches_are_listed_on_request(gpu):
    x = torch.ones(2)
    with gpu.record() as short, gpu.record(launches=True) as long:
        x + x
        gpu.work(1.0)
    assert kinds(short) == [("work", "work")]
    assert kinds(long) == [("launch", "aten::add"), ("work", "work")]


def test_a_log_ends_with_its_block(gpu):
    with gpu.record() as log:
        gpu.work(1.0)
    gpu.work(1.0)
    assert len(log) == 1


def test_side_streams_are_named(gpu):
    side = torch.cuda.Stream()
    with gpu.record() as log, torch.cuda.stream(side):
        gpu.work(1.0)
    assert log[0]["stream"] == side.stream_id != 0
