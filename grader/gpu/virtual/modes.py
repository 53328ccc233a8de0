"""The two torch modes that make CPU tensors behave as if they were on the virtual GPU.

`ChargeMode` sees every ATen operation, those of the backward pass and of the optimizer too, runs
it on the CPU, and charges the machine and the ledger for it. `PlacementMode` sees calls of torch's
Python API: it turns "cuda" into "cpu", and waits where data leave the device without an operation.
"""

from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from . import costs, pricing
from .ledger import Ledger
from .machine import Machine


class DeviceName(str):
    """The name that this tier's device has for torch, "cpu", and yet not the host's.

    `x.to(gpu.device)` moves to the virtual GPU, `x.to("cpu")` away from it.
    """

    __slots__ = ()


DEVICE = DeviceName("cpu")


_SYNC_NAMES = {"aten::_local_scalar_dense": "item"}
_READS = {"tolist": "tolist", "numpy": "numpy", "__array__": "numpy", "__repr__": "repr"}
"""Methods of Tensor that read its data without an operation, and the cause they are logged as."""

_MASKS = (torch.bool, torch.uint8)
_SCALARS = (bool, int, float, complex)


class ChargeMode(TorchDispatchMode):
    """Charges each operation to `machine` and each new storage to `ledger`."""

    def __init__(self, machine: Machine, ledger: Ledger, peak_gbs: float, peak_tflops: float):
        super().__init__()
        self._machine = machine
        self._ledger = ledger
        self._peaks = (peak_gbs, peak_tflops)
        self._prices = {}
        self._moving = None

    @contextmanager
    def moving(self, to_host: bool):
        """Inside, operations are free, and their results are the host's or else the device's."""
        before, self._moving = self._moving, to_host
        try:
            yield
        finally:
            self._moving = before

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Have torch leave `__torch_dispatch__` unwrapped: the wrapper is slow."""
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        what = self._prices.get(func)
        if what is None:
            what = self._prices[func] = pricing.price(func)
        if what.composite:  # seen in inference mode only; elsewhere autograd takes it apart first
            with self:
                return func.decompose(*args, **kwargs)
        # In a backward pass PlacementMode is active here too; nothing below is for it to see.
        with torch._C.DisableTorchFunction():
            result = func(*args, **kwargs)
            self._charge(what, args, kwargs, result)
        return result

    def _charge(self, what, args, kwargs, result) -> None:
        if what.free and not what.allocates:
            return
        results = pricing.tensors_in((result,))
        inputs = pricing.tensors_in((*args, *kwargs.values()))
        if not (inputs or results) or (results or inputs)[0].is_meta:
            return
        ledger = self._ledger
        if self._moving is None:
            free = on_host = bool(inputs) and all(map(ledger.is_on_host, inputs))
        else:
            free, on_host = True, self._moving
        if what.allocates:
            for each in results:
                ledger.enter(each, on_host)
        if free:
            return
        if not what.free:
            duration = costs.kernel_ns(
                pricing.bytes_moved(what, args, kwargs, results),
                pricing.flops(what, args, kwargs),
                *self._peaks,
            )
            self._machine.launch(duration, "launch", what.name)
        if what.synchronizes or (what.synchronizes_on_mask and _has_mask(args[1])):
            cause = _SYNC_NAMES.get(what.name, what.name.removeprefix("aten::"))
            self._machine.synchronize(cause, stream=self._machine.current_stream)


def _has_mask(indices) -> bool:
    return any(each.dtype in _MASKS for each in pricing.tensors_in(indices))


class PlacementMode(TorchFunctionMode):
    """Maps "cuda" to the CPU; waits where Python takes data off the device."""

    def __init__(self, machine: Machine, ledger: Ledger, charge: ChargeMode):
        super().__init__()
        self._machine = machine
        self._ledger = ledger
        self._charge = charge
        tensor = torch.Tensor
        self._handlers = {
            tensor.cpu: self._cpu,
            tensor.cuda: self._cuda,
            tensor.to: self._to,
            tensor.pin_memory: lambda func, args, kwargs: args[0],
            **{getattr(tensor, name): self._read for name in _READS},
            tensor.backward: self._backward,
            torch.tensor: self._from_python,
        }

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = _without_cuda(kwargs) if kwargs else {}
        handler = self._handlers.get(func)
        if handler is not None:
            return handler(func, args, kwargs)
        return func(*args, **kwargs)

    # -- off the device -----------------------------------------------------------------------

    def _leave(self, tensor, cause: str, waits: bool = True) -> None:
        """Charge a copy from the device to the host."""
        if self._ledger.is_on_host(tensor):
            return
        self._machine.launch(_transfer_ns(tensor), "launch", "copy to host")
        if waits:
            self._machine.synchronize(cause, stream=self._machine.current_stream)

    def _read(self, func, args, kwargs):
        self._leave(args[0], _READS[func.__name__])
        return func(*args, **kwargs)

    def _to_host(self, tensor, cause: str, waits: bool = True):
        if self._ledger.is_on_host(tensor):
            return tensor
        self._leave(tensor, cause, waits)
        with self._charge.moving(to_host=True):
            return tensor.clone()

    def _cpu(self, func, args, kwargs):
        return self._to_host(args[0], "cpu")

    # -- onto the device ----------------------------------------------------------------------

    def _to_device(self, tensor, cause: str, waits: bool):
        if not self._ledger.is_on_host(tensor):
            return tensor
        self._machine.launch(_transfer_ns(tensor), "launch", "copy to device")
        if waits:
            self._machine.synchronize(cause, stream=self._machine.current_stream)
        with self._charge.moving(to_host=False):
            return tensor.clone()

    def _cuda(self, func, args, kwargs):
        non_blocking = kwargs.get("non_blocking", args[2] if len(args) > 2 else False)
        return self._to_device(args[0], "cuda", not non_blocking)

    def _to(self, func, args, kwargs):
        tensor, *rest = args
        where = kwargs.get("device", rest[0] if rest else None)
        if rest and _is_cuda(where):
            where = rest[0] = DEVICE
        non_blocking = kwargs.get("non_blocking", len(rest) > 2 and rest[2])
        if isinstance(where, DeviceName):
            tensor = self._to_device(tensor, "to", not non_blocking)
        elif _is_host(where):
            tensor = self._to_host(tensor, "to", not non_blocking)
        return func(tensor, *rest, **kwargs)

    def _from_python(self, func, args, kwargs):
        """A number that becomes a tensor, but is not put on the device, stays on the host.

        AdamW keeps its count of steps so, which is why it may read it without waiting.
        """
        is_number = isinstance(args[0] if args else None, _SCALARS)
        if is_number and (kwargs.get("device") is None or _is_host(kwargs["device"])):
            with self._charge.moving(to_host=True):
                return func(*args, **kwargs)
        return func(*args, **kwargs)

    # -- backward -----------------------------------------------------------------------------

    def _backward(self, func, args, kwargs):
        """Tensor.backward would run the pass with this mode off: hooks would not be seen."""
        names = ("tensors", "grad_tensors", "retain_graph", "create_graph", "inputs")
        kwargs = {**dict(zip(names, args, strict=False)), **kwargs}
        if "gradient" in kwargs:
            kwargs["grad_tensors"] = kwargs.pop("gradient")
        with self:
            torch.autograd.backward(**kwargs)


def _transfer_ns(tensor) -> int:
    return costs.kernel_ns(pricing.nbytes(tensor), 0, costs.TRANSFER_GBS, 1.0)


def _is_cuda(device) -> bool:
    if isinstance(device, str):
        return device.split(":")[0] == "cuda"
    return isinstance(device, torch.device) and device.type == "cuda"


def _is_host(device) -> bool:
    """Does this name the host? A torch.device does not say: it may be some tensor's own."""
    return isinstance(device, str) and not isinstance(device, DeviceName)


def on_cpu(device):
    """The device to use in its place: the CPU for a CUDA device, by name, object or index."""
    is_index = isinstance(device, int) and not isinstance(device, bool)
    return DEVICE if is_index or _is_cuda(device) else device


def _without_cuda(kwargs: dict) -> dict:
    if "device" in kwargs:
        kwargs = {**kwargs, "device": on_cpu(kwargs["device"])}
    if kwargs.get("pin_memory"):
        kwargs = {**kwargs, "pin_memory": False}
    return kwargs
