"""One GPU, two tiers: the machine's own ("cuda"), or a stand-in in virtual time ("virtual").

    with open_gpu("virtual", sheet) as gpu:
        ...                       # import the code under test in here, not before

Opening a GPU wraps parts of torch (and, on the virtual tier, Python's clocks), so code that binds
such names when it is imported must be imported inside the block. Leaving it puts everything back.

The object has, on both tiers:

    gpu.tier                      "virtual" or "cuda"
    gpu.device                    what tensors that belong on this GPU take as `device`
    gpu.name                      the GPU's name
    gpu.work(ms)                  enqueue a kernel of that duration in the current stream
    gpu.host(ms)                  the host is busy for that long and enqueues nothing
    gpu.sync()                    wait for the device
    gpu.host_ms()                 the host's clock; differences matter
    gpu.delay(x, forward_ms, backward_ms)
                                  the values of x; enqueues work now, and when the backward pass
                                  reaches x. If x needs no gradient, backward never does
    gpu.slow(module, forward_ms, backward_ms)
                                  context manager: the module's forward starts with such a delay,
                                  inside its hooks; recomputation runs the forward part again
    gpu.allocated_bytes()         device memory that tensors occupy
    gpu.peak_bytes()              the most since the last reset_peak()
    gpu.reset_peak()
    gpu.adopt(*owners)            count tensors, modules or optimizers that existed before
    gpu.record(launches=False)    context manager giving a list, to which entries are appended

A log entry is a dict with "kind", "name" and "host_ms":

    kind            name                                    more keys
    range_push      the range's name                        also range_pop
    mark            the mark's name
    event_record    "event"                                 event (a number per event object)
    synchronize     what caused it, see below
    work            "work", or what was passed as name      duration_ms
    launch          the operation, such as aten::mm         only if launches=True; virtual only

A synchronization's cause is "torch.cuda.synchronize", "Event.synchronize", "Stream.synchronize",
"gpu.sync", or the Tensor method or operation that brought data to the host: "item" (also for
bool(), int(), float()), "cpu", "tolist", "numpy", "to", "repr", "nonzero", ... The virtual tier
adds "device_ms", the time at which the device gets to this point, "stream", and "waited_ms".

What the virtual tier models, and what not, is in the package `virtual`.
"""

from contextlib import contextmanager


@contextmanager
def open_gpu(tier: str, sheet=None):
    """The GPU of `tier`, "virtual" or "cuda", while the `with` block runs.

    sheet: data sheet of the virtual GPU (any object with `name`, `peak_tflops`, `peak_gbs` and
    `memory_gib`); a real GPU has no use for it.
    Raises ValueError for another tier, RuntimeError if a GPU is open already in this process or,
    on the "cuda" tier, if there is none.
    """
    if tier == "virtual":
        from .virtual import virtual_gpu as open_tier
    elif tier == "cuda":
        from .real import real_gpu as open_tier
    else:
        raise ValueError(f"the tier must be 'virtual' or 'cuda', not {tier!r}")
    with open_tier(sheet) as gpu:
        yield gpu
