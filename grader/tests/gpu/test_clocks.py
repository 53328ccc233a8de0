"""Time on the virtual GPU's host: what a timer reads, and that waiting ends."""

import threading
import time
import timeit

import pytest
import torch

from grader.gpu import open_gpu
from grader.gpu.virtual import costs

CLOCKS_S = ["time", "perf_counter", "monotonic"]
CLOCKS_NS = [name + "_ns" for name in CLOCKS_S]


@pytest.mark.parametrize("name", CLOCKS_S + CLOCKS_NS)
def test_a_timer_that_does_not_synchronize_reads_the_launch(gpu, name):
    clock, per_ms = getattr(time, name), 1e6 if name.endswith("_ns") else 1e-3
    start = clock()
    gpu.work(10.0)
    assert (clock() - start) / per_ms == pytest.approx(
        (costs.LAUNCH_NS + costs.CLOCK_READ_NS) / 1e6, abs=1e-3
    )


@pytest.mark.parametrize("name", CLOCKS_S + CLOCKS_NS)
def test_a_timer_that_synchronizes_reads_the_work(gpu, name):
    clock, per_ms = getattr(time, name), 1e6 if name.endswith("_ns") else 1e-3
    start = clock()
    gpu.work(10.0)
    torch.cuda.synchronize()
    assert (clock() - start) / per_ms == pytest.approx(10.0, abs=0.02)


def test_real_time_plays_no_part(gpu):
    before = gpu.host_ms()
    sum(range(200_000))  # milliseconds of real time
    assert gpu.host_ms() == before


def test_sleep_takes_virtual_time_only(gpu):
    start = time.perf_counter()
    time.sleep(3600)
    assert time.perf_counter() - start == pytest.approx(3600, abs=1e-5)
    with pytest.raises(ValueError, match="non-negative"):
        time.sleep(-1)


def test_the_device_works_while_the_host_sleeps_or_is_busy(gpu):
    end = torch.cuda.Event()
    gpu.work(10.0)
    end.record()
    gpu.host(6.0)
    assert not end.query()
    time.sleep(0.006)
    assert end.query()


def test_process_time_leaves_out_sleep_and_counts_waiting_for_the_device(gpu):
    start = time.process_time()
    time.sleep(1.0)
    gpu.work(10.0)
    torch.cuda.synchronize()
    assert time.process_time() - start == pytest.approx(0.010, abs=1e-4)


def test_a_loop_that_waits_for_a_time_ends(gpu):
    until = time.perf_counter() + 0.002
    while time.perf_counter() < until:
        pass
    assert gpu.host_ms() == pytest.approx(2.0, abs=0.01)


def test_a_loop_that_waits_for_the_device_ends(gpu):
    end = torch.cuda.Event()
    gpu.work(2.0)
    end.record()
    while not end.query():
        pass
    gpu.work(2.0)
    while not torch.cuda.current_stream().query():
        pass
    assert gpu.host_ms() == pytest.approx(4.0, abs=0.02)


def test_timeit_reads_the_virtual_clock(gpu):
    start = timeit.default_timer()
    gpu.host(7.0)
    assert timeit.default_timer() - start == pytest.approx(0.007, abs=1e-6)


def test_names_taken_while_one_virtual_gpu_was_open_read_the_next_one_and_then_the_real_clock():
    real = time.perf_counter
    with open_gpu("virtual"):
        from time import perf_counter
    with open_gpu("virtual") as gpu:
        start = perf_counter()
        gpu.host(5.0)
        assert perf_counter() - start == pytest.approx(0.005, abs=1e-6)
    assert abs(perf_counter() - real()) < 60  # seconds; the virtual clock is elsewhere


def test_another_thread_sees_real_time_and_does_not_move_the_clock(gpu):
    """A thread that samples a counter and sleeps in between must neither spin nor disturb."""
    before, seen = gpu.host_ms(), []

    def sample():
        start = time.monotonic()
        time.sleep(0.02)
        seen.append(time.monotonic() - start)

    thread = threading.Thread(target=sample)
    thread.start()
    thread.join()
    assert seen[0] >= 0.015
    assert gpu.host_ms() == before
