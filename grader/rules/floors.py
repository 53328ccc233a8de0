"""The least that OLMoE's operations, passes and steps can take on a GPU.

A roofline at the highest clock the driver allows, with a little on top: nothing that ran is below.
Counts come from the suites' own counting (public/counts.py), not from the hand-in.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from olmoe.config import OlmoeConfig
from shared.gpus import Gpu

from ..public.counts import ACTIVE, RIGHT, params, training_flops

ABOVE_COMPUTE = 1.02  # a clock is read with some error
ABOVE_BANDWIDTH = 1.05  # memory clocks vary a little between boards of a name
FULL_L2 = 2  # of reads that hit what the last call left there, of writes that are still in it after
STATE_BYTES = 8  # per parameter: weight, gradient, two moments, in bf16
MOVED_BYTES = 14  # per parameter and optimizer step: all read, all but the gradient written
REBUILT = 0.5  # of a layer's forward: the recomputation ends before what only its output needs

FORWARD_PASSES = 1 / 3  # of what training does
BACKWARD_PASSES = 2 / 3


def compute_ms(flops: float, gpu: Gpu) -> float:
    """Time of so much bf16 arithmetic with all tensor cores busy."""
    return flops / (ABOVE_COMPUTE * gpu.max_tflops * 1e9)


def memory_ms(nbytes: float, gpu: Gpu) -> float:
    """Time to move so many bytes to or from the GPU's memory."""
    return nbytes / (ABOVE_BANDWIDTH * gpu.peak_gbs * 1e6)


def operation_ms(flops: float, nbytes: float, gpu: Gpu) -> float:
    """An operation that is repeated on the same tensors, which the L2 cache may hold in part."""
    from_memory = max(0.0, nbytes - FULL_L2 * gpu.l2_mib * 2**20)
    return max(compute_ms(flops, gpu), memory_ms(from_memory, gpu))


@dataclass(frozen=True)
class Step:
    """A training step of the first `layers` layers."""

    layers: int
    tokens: int  # of the global batch
    seqlen: int
    recompute: bool
    gpu: Gpu

    @property
    def training_ms(self) -> float:
        """All of the arithmetic, without any recomputation: forward and twice as much backward."""
        return compute_ms(self.tokens * flops_per_token(self.layers, self.seqlen), self.gpu)

    @property
    def forward_ms(self) -> float:
        return self.training_ms * FORWARD_PASSES

    @property
    def backward_ms(self) -> float:
        return self.training_ms * BACKWARD_PASSES

    @property
    def recompute_ms(self) -> float:
        """0 without recomputation."""
        if not self.recompute:
            return 0.0
        a_layer = flops_per_token(2, self.seqlen) - flops_per_token(1, self.seqlen)
        layers_ms = compute_ms(self.tokens * self.layers * a_layer, self.gpu)
        return REBUILT * FORWARD_PASSES * layers_ms

    @property
    def optimizer_ms(self) -> float:
        return memory_ms(MOVED_BYTES * parameters(self.layers), self.gpu)

    @property
    def step_ms(self) -> float:
        return self.training_ms + self.recompute_ms + self.optimizer_ms

    @property
    def state_gib(self) -> float:
        """Weights, gradients and moments: what is in memory at once when the optimizer runs."""
        return STATE_BYTES * parameters(self.layers) / 2**30


@cache
def flops_per_token(layers: int, seqlen: int) -> float:
    """FLOPs of training per token, forward and backward, attention causal."""
    return training_flops(OlmoeConfig(n_layers=layers), seqlen, ACTIVE)


@cache
def parameters(layers: int) -> int:
    return params(OlmoeConfig(n_layers=layers), RIGHT)
