"""What things cost on the virtual GPU, each constant with its reason.

Only two relations between these numbers matter to a verdict: a launch is far cheaper than the
work a test enqueues (so a timer that forgets to synchronize is wrong by everything), and a launch
is cheaper than the shortest kernel (so a busy queue stays busy, and the time between two events
is the time of the kernels between them, not of Python).
"""

LAUNCH_NS = 3_000
"""Host time to enqueue one kernel: what an eager PyTorch operation costs on a fast CPU."""

KERNEL_FLOOR_NS = 5_000
"""Device time of the shortest kernel: start, drain, and the gap to the next one."""

EVENT_RECORD_NS = 500
"""Host time to put an event into a queue. The event itself takes no device time."""

QUERY_NS = 1_000
"""Host time of asking an event or a stream whether it is done. More than zero, so polls end."""

SYNCHRONIZE_NS = 5_000
"""Host time to notice, after the device has finished, that it has."""

CLOCK_READ_NS = 200
"""Host time of reading a clock. More than zero, so that a loop which waits for a time ends."""

NVTX_NS = 100
"""Host time of opening or closing an NVTX range when a tool listens."""

TRANSFER_GBS = 50.0
"""Bandwidth between host and device: PCIe 5.0 x16 in practice. One GB/s is one byte per ns."""

QUEUE_DEPTH = 1_024
"""Launches that may be pending in one stream; the next one waits, as on a real device."""

SLEEP_CYCLES_PER_MS = 1_000_000
"""`torch.cuda._sleep` counts cycles; the virtual device's clock runs at 1 GHz."""

ALLOCATION_BYTES = 512
"""The caching allocator of PyTorch rounds every block up to a multiple of this."""

SEGMENT_BYTES = 2 * 1024**2
"""The caching allocator reserves memory in segments of at least this size."""

EPOCH_NS = 1_800_000_000 * 10**9
"""What `time.time_ns()` reads when the virtual GPU is opened: a fixed date, never the real one."""

BOOT_NS = 1_000 * 10**9
"""What the monotonic clocks read when the virtual GPU is opened."""


def kernel_ns(nbytes: float, flops: float, peak_gbs: float, peak_tflops: float) -> int:
    """Roofline time of one kernel in ns: the slower of moving its bytes and doing its FLOPs."""
    memory_ns = nbytes / peak_gbs  # 1 GB/s = 1 byte per ns
    compute_ns = flops / (peak_tflops * 1e3)  # 1 TFLOP/s = 1000 FLOPs per ns
    return max(KERNEL_FLOOR_NS, round(memory_ns), round(compute_ns))
