"""A deterministic stand-in for a CUDA GPU, in virtual time, for machines that have none.

    with virtual_gpu(sheet) as gpu:
        import solution              # sees torch.cuda.is_available() == True
        gpu.work(5.0)                # a kernel of 5 ms in the current stream
        torch.cuda.synchronize()     # the virtual host's clock moves on by 5 ms

Operations run on CPU tensors, so results are real. Time is not: an operation costs the host a
launch and the current stream a kernel (`costs`, `pricing`), and everything that tells the time
reads that machine. Real time, the load, the number of threads and the hash seed play no part.

What to know before relying on it:

- A tensor is on the GPU unless code took it off (`.cpu()`, `.to("cpu")`) or it is a number made a
  tensor without a device. `torch.zeros(3)` counts as the GPU's, although a CUDA program would have
  to say so. `x.to(x.device)` and `x.to(gpu.device)` are not moves. Operations on the host's tensors
  alone are free.
- `x.is_cuda` is False and `x.device` is the CPU, so a model takes its CPU path.
- A kernel reads its inputs once and writes its results once; caches, occupancy and the dtype's peak
  are not modelled, nor is memory that an operation uses inside itself.
- Streams overlap without slowing each other. The backward pass runs in the stream that is current.
- Memory follows storages that operations return. `Storage.resize_` goes unnoticed until the next
  operation that allocates for the same tensor; what existed before counts once `adopt`ed.
- Only the thread that opened it is covered. In other threads operations are not charged, "cuda" is
  not mapped and clocks are real; events, streams and NVTX work, in whatever order threads run.
- `time` and `timeit.default_timer` are virtual; `datetime.now()` and `time.clock_gettime` are not.
- `torch.compile` runs eagerly. CUDA graphs and `torch.profiler`'s CUDA side are not there.
- Storages die with their last reference; those in reference cycles when Python's collector runs.
"""

from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import torch
import torch._dynamo  # torch would import it lazily, and it must not see what is patched here
from torch.utils._device import DeviceContext

from ..patches import Patches
from ..slow import Delays
from . import clocks, cuda, installed
from .ledger import Ledger
from .machine import NS_PER_MS, Machine
from .modes import DEVICE, ChargeMode, PlacementMode, on_cpu

DEFAULT_SHEET = SimpleNamespace(
    name="Virtual GPU", peak_tflops=989.0, peak_gbs=4800.0, memory_gib=139.8
)
"""Used when no data sheet is given: about an H200."""


class VirtualGpu(Delays):
    """The interface described in the package `gpu`, in virtual time."""

    tier = "virtual"
    device = DEVICE

    def __init__(self, sheet):
        self.sheet = sheet
        self.name = sheet.name
        self.machine = Machine()
        self.ledger = Ledger(int(sheet.memory_gib * 2**30))

    def work(self, ms: float, name: str = "work") -> None:
        self.machine.launch(_ns(ms), "work", name)

    def host(self, ms: float) -> None:
        self.machine.advance(_ns(ms))

    def sync(self) -> None:
        self.machine.synchronize("gpu.sync")

    def host_ms(self) -> float:
        return self.machine.now / NS_PER_MS

    def allocated_bytes(self) -> int:
        return self.ledger.allocated_bytes

    def peak_bytes(self) -> int:
        return self.ledger.peak_bytes

    def reset_peak(self) -> None:
        self.ledger.reset_peak()

    def adopt(self, *owners) -> None:
        for owner in owners:
            for tensor in _tensors_of(owner):
                self.ledger.enter(tensor)

    @contextmanager
    def record(self, launches: bool = False):
        log = self.machine.start_log(launches)
        try:
            yield log
        finally:
            self.machine.stop_log(log)


def _ns(ms: float) -> int:
    if not ms >= 0:
        raise ValueError(f"a duration in ms must be zero or more, not {ms!r}")
    return round(ms * NS_PER_MS)


def _tensors_of(owner):
    """The tensors of a tensor, module, optimizer, or of a dict, list or tuple of such."""
    if isinstance(owner, torch.Tensor):
        yield owner
        if owner.is_leaf and owner.grad is not None:
            yield owner.grad
    elif isinstance(owner, torch.nn.Module):
        for tensor in (*owner.parameters(), *owner.buffers()):
            yield from _tensors_of(tensor)
    elif isinstance(owner, torch.optim.Optimizer):
        yield from _tensors_of(list(owner.state.values()))
    elif isinstance(owner, dict):
        yield from _tensors_of(list(owner.values()))
    elif isinstance(owner, (list, tuple)):
        for member in owner:
            yield from _tensors_of(member)


@contextmanager
def virtual_gpu(sheet=None):
    """Install a virtual GPU in this process while the `with` block runs; gives the `VirtualGpu`.

    sheet: any object with `name`, `peak_tflops`, `peak_gbs` and `memory_gib`, such as a
    `shared.gpus.Gpu`; `DEFAULT_SHEET` if None.
    Raises RuntimeError if one is open already.
    """
    gpu = VirtualGpu(sheet or DEFAULT_SHEET)
    installed.install(gpu)
    with ExitStack() as undo:
        undo.callback(installed.uninstall)
        patches = Patches()
        undo.callback(patches.restore)
        clocks.patch(patches)
        cuda.patch(patches)
        _patch_torch(patches)
        undo.enter_context(torch.compiler.set_stance("force_eager"))  # else it compiles the modes
        charge = ChargeMode(gpu.machine, gpu.ledger, gpu.sheet.peak_gbs, gpu.sheet.peak_tflops)
        undo.enter_context(PlacementMode(gpu.machine, gpu.ledger, charge))
        undo.enter_context(charge)
        yield gpu


def _patch_torch(patches: Patches) -> None:
    """Three places where torch's own code would get in the way of the modes."""
    # torch.autograd.backward and grad hand over to function modes and run with these off, so that
    # hooks and recomputation would escape PlacementMode. Plain tensors need no handing over.
    hand_over = torch.autograd.has_torch_function
    plain = (torch.Tensor, torch.nn.Parameter)

    def has_torch_function(tensors) -> bool:
        return any(type(each) not in plain for each in tensors) and hand_over(tensors)

    patches.set(torch.autograd, "has_torch_function", has_torch_function)

    # `with torch.device("cuda")` and set_default_device insert the device below PlacementMode.
    make = DeviceContext.__init__

    def __init__(self, device) -> None:
        make(self, on_cpu(device))

    patches.set(DeviceContext, "__init__", __init__)

    # Tells the caching allocator about a second stream; it would insist on torch's own Stream.
    patches.set(torch.Tensor, "record_stream", lambda tensor, stream: None)
