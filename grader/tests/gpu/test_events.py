"""Events and streams of the virtual GPU: what they read, and what they refuse."""

import pytest
import torch

from grader.gpu.virtual import costs


def timed_event():
    return torch.cuda.Event(enable_timing=True)


def test_events_read_the_device_time_between_them(gpu):
    gpu.work(1.0)  # the queue is busy, so launches do not show
    start, middle, end = timed_event(), timed_event(), timed_event()
    start.record()
    gpu.work(5.0)
    middle.record()
    gpu.work(2.5)
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(middle) == 5.0
    assert middle.elapsed_time(end) == 2.5
    assert end.elapsed_time(start) == -7.5


def test_on_an_idle_device_an_event_is_stamped_at_once(gpu):
    start, end = timed_event(), timed_event()
    start.record()
    gpu.host(3.0)
    gpu.work(5.0)
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) == pytest.approx(8.0 + costs.LAUNCH_NS / 1e6)


def test_an_event_that_the_device_has_not_reached_raises(gpu):
    start, end = timed_event(), timed_event()
    start.record()
    gpu.work(5.0)
    end.record()
    with pytest.raises(RuntimeError, match="device not ready"):
        start.elapsed_time(end)
    end.synchronize()
    assert start.elapsed_time(end) == pytest.approx(5.0, abs=0.01)


def test_an_event_that_was_never_recorded_raises(gpu):
    start, end = timed_event(), timed_event()
    start.record()
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(end)


def test_an_event_without_timing_raises(gpu):
    start, end = timed_event(), torch.cuda.Event()
    start.record()
    end.record()
    with pytest.raises(ValueError, match="enable_timing"):
        start.elapsed_time(end)


def test_recording_again_moves_the_event(gpu):
    start, end = timed_event(), timed_event()
    gpu.work(1.0)
    start.record()
    for ms in (2.0, 3.0):
        gpu.work(ms)
        end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) == 5.0


def test_waiting_for_an_event_waits_for_no_more_than_that(gpu):
    first = torch.cuda.Event()
    gpu.work(4.0)
    first.record()
    gpu.work(100.0)
    first.synchronize()
    assert gpu.host_ms() == pytest.approx(4.0, abs=0.02)


def test_torch_event_is_one_of_ours_too(gpu):
    start = torch.Event("cuda", enable_timing=True)
    end = torch.Event(device="cuda", enable_timing=True)
    gpu.work(1.0)
    start.record()
    gpu.work(5.0)
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) == 5.0


def test_sleep_kernels_are_work(gpu):
    with gpu.record() as log:
        torch.cuda._sleep(5 * costs.SLEEP_CYCLES_PER_MS)
    assert [(entry["kind"], entry["duration_ms"]) for entry in log] == [("work", 5.0)]


def test_streams_overlap_and_wait_for_each_other(gpu):
    side = torch.cuda.Stream()
    gpu.work(5.0)
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side
        gpu.work(8.0)
        done = side.record_event()
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    torch.cuda.synchronize()
    assert gpu.host_ms() == pytest.approx(8.0, abs=0.02)

    with side:
        gpu.work(8.0)
        done.record()
    torch.cuda.current_stream().wait_event(done)
    gpu.work(5.0)
    torch.cuda.current_stream().synchronize()
    assert gpu.host_ms() == pytest.approx(8.0 + 13.0, abs=0.04)


def test_a_stream_that_is_not_waited_for_is_not_waited_for(gpu):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        gpu.work(50.0)
    gpu.work(2.0)
    torch.cuda.current_stream().synchronize()
    assert gpu.host_ms() == pytest.approx(2.0, abs=0.02)
    torch.cuda.current_stream().wait_stream(side)
    gpu.work(1.0)
    torch.cuda.synchronize()
    assert gpu.host_ms() == pytest.approx(51.0, abs=0.02)


def test_a_backed_up_queue_hides_launches_and_an_idle_one_shows_them(gpu):
    def gap_ms(synchronize):
        start, end = timed_event(), timed_event()
        gpu.work(10.0)
        start.record()
        for _ in range(100):
            if synchronize:
                torch.cuda.synchronize()
            gpu.work(0.005)
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end)

    assert gap_ms(synchronize=False) == pytest.approx(0.5)
    assert gap_ms(synchronize=True) > 0.5 + 99 * costs.LAUNCH_NS / 1e6


def test_a_full_queue_makes_the_next_launch_wait(gpu):
    for _ in range(costs.QUEUE_DEPTH):
        gpu.work(1.0)
    launched_ms = gpu.host_ms()
    assert launched_ms < 10
    for _ in range(5):
        gpu.work(1.0)
    assert gpu.host_ms() == pytest.approx(5.0, abs=0.05)


@pytest.mark.parametrize("ms", [-1.0, float("nan")])
def test_impossible_durations_are_refused(gpu, ms):
    with pytest.raises(ValueError, match="duration"):
        gpu.work(ms)
    with pytest.raises(ValueError, match="duration"):
        gpu.host(ms)
