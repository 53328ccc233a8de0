"""Small models and micro batches for the tests, each from a seed."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from hypothesis import settings
from hypothesis import strategies as st

from olmoe.config import OlmoeConfig
from olmoe.data import MicroBatch, pack
from olmoe.model import Olmoe


def sample_config(**changes) -> OlmoeConfig:
    sizes = {
        "n_layers": 2,
        "d_model": 32,
        "n_heads": 2,
        "d_expert": 24,
        "n_experts": 8,
        "experts_per_token": 3,
        "vocab_size": 61,
    }
    return OlmoeConfig(**(sizes | changes))


def sample_micro_batch(cfg: OlmoeConfig, lengths, seed: int = 0) -> MicroBatch:
    generator = torch.Generator().manual_seed(seed)
    return pack([torch.randint(cfg.vocab_size, (n + 1,), generator=generator) for n in lengths])


def sample_model(cfg: OlmoeConfig, moe_impl="grouped", dtype=torch.float32, seed: int = 0) -> Olmoe:
    """Weights large enough that every layer and the routing matter, and unequal norm weights."""
    model = Olmoe(cfg, moe_impl, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            mean, std = (1.0, 0.3) if "norm" in name else (0.0, weight.shape[-1] ** -0.5)
            weight.normal_(mean, std, generator=generator)
    return model.to(dtype)


def one_pass(model: Olmoe, micro_batch: MicroBatch, recompute: bool = False):
    """(logits, gradient of each parameter by name)"""
    model.zero_grad()
    logits = model(micro_batch.tokens, micro_batch.seqs, recompute=recompute)
    F.cross_entropy(logits.float(), micro_batch.targets).backward()
    return logits.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


def difference(a: torch.Tensor, b: torch.Tensor, least_norm: float = 1e-30) -> float:
    """Norm of a - b, relative to that of b or to `least_norm`. NaN when either holds one."""
    a, b = a.double(), b.double()
    return ((a - b).norm() / b.norm().clamp_min(least_norm)).item()


def examples(count: int):
    """The same `count` examples in every run, however long each takes, and no database of them."""
    return settings(max_examples=count, deadline=None, derandomize=True, database=None)


configs = st.builds(
    lambda heads, width, **sizes: sample_config(n_heads=heads, d_model=heads * width, **sizes),
    heads=st.integers(1, 3),
    width=st.sampled_from([4, 8, 16]),
    n_layers=st.integers(1, 2),
    d_expert=st.sampled_from([4, 8, 20]),
    n_experts=st.integers(4, 9),
    experts_per_token=st.integers(1, 4),
)
lengths = st.lists(st.integers(1, 9), min_size=1, max_size=5)
