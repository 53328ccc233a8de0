"""What a probe works with: the hand-in's modules, the released ones, and a GPU."""

from __future__ import annotations

from types import ModuleType

from .modules import Modules


class Lab:
    """Handed to every probe as its first argument."""

    def __init__(self, gpu, modules: Modules):
        self.gpu = gpu  # the interface of grader/gpu
        self._modules = modules

    @property
    def device(self) -> str:
        """Where tensors go: "cpu" on the virtual tier, "cuda" on a real GPU."""
        return self.gpu.device

    def load(self, name: str) -> ModuleType:
        """The hand-in's module, for instance "olmoe.prof"."""
        return self._modules.load(name)

    def released(self, name: str) -> ModuleType:
        """The module as it was released, for whatever is not under test."""
        return self._modules.released(name)
