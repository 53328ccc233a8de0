"""Device memory of the virtual GPU: a ledger of storages that are alive.

A CPU build of PyTorch counts no memory, so every storage that an operation returns is entered here
and struck out when PyTorch frees it. Views share their base's storage and count once. The moment
is exact: a storage dies when its last tensor (Python's or the autograd graph's) does, without
help from the garbage collector unless the owner is part of a reference cycle.
"""

import threading
import weakref

import torch

from . import costs


class _Entry(weakref.ref):
    """A weak reference to a storage, and what it counts for."""

    __slots__ = ("key", "nbytes")


def _rounded(nbytes: int, unit: int) -> int:
    return -(-nbytes // unit) * unit


class Ledger:
    """Allocated bytes now and at most; which storages are in the host's memory instead."""

    def __init__(self, capacity_bytes: int):
        self.capacity_bytes = capacity_bytes
        self.allocated_bytes = 0
        self.peak_bytes = 0
        self.reserved_bytes = 0
        self._entries = {}
        self._on_host = set()  # keys of entries that are the host's
        self._lock = threading.RLock()

    def enter(self, tensor: torch.Tensor, on_host: bool = False) -> None:
        """Enter the storage of `tensor`, or bring an entered one up to its present size.

        Raises torch.OutOfMemoryError when the device's capacity is exceeded.
        """
        storage = tensor.untyped_storage()
        key = id(storage)
        entry = self._entries.get(key)
        if entry is None:
            entry = _Entry(storage, self._strike)
            entry.key, entry.nbytes = key, 0
            with self._lock:
                self._entries[key] = entry
                if on_host:
                    self._on_host.add(key)
        if key not in self._on_host:
            nbytes = _rounded(storage.nbytes(), costs.ALLOCATION_BYTES)
            if nbytes != entry.nbytes:
                self._resize(entry, nbytes)

    def is_on_host(self, tensor: torch.Tensor) -> bool:
        """Was this tensor's storage entered as the host's?"""
        return bool(self._on_host) and id(tensor.untyped_storage()) in self._on_host

    def _resize(self, entry: _Entry, nbytes: int) -> None:
        with self._lock:
            grows = nbytes - entry.nbytes
            if self.allocated_bytes + grows > self.capacity_bytes:
                raise torch.OutOfMemoryError(
                    f"CUDA out of memory. Tried to allocate {nbytes / 2**30:.2f} GiB: the virtual "
                    f"GPU has {self.capacity_bytes / 2**30:.2f} GiB, of which "
                    f"{self.allocated_bytes / 2**30:.2f} GiB are allocated."
                )
            entry.nbytes = nbytes
            self.allocated_bytes += grows
            self.peak_bytes = max(self.peak_bytes, self.allocated_bytes)
            segments = _rounded(self.allocated_bytes, costs.SEGMENT_BYTES)
            self.reserved_bytes = max(self.reserved_bytes, segments)

    def _strike(self, entry: _Entry) -> None:
        with self._lock:
            self.allocated_bytes -= entry.nbytes
            self._on_host.discard(entry.key)
            if self._entries.get(entry.key) is entry:
                del self._entries[entry.key]

    def reset_peak(self) -> None:
        self.peak_bytes = self.allocated_bytes

    def release_cache(self) -> None:
        self.reserved_bytes = _rounded(self.allocated_bytes, costs.SEGMENT_BYTES)
