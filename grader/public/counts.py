"""What the exercises on plain numbers ask for, counted tensor by tensor, and how it is miscounted.

`Choices` holds every decision that such a count takes. The right ones are the defaults; a mistake
is a count with one of them taken otherwise, and has words for the student.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from random import Random

from olmoe.config import OlmoeConfig
from shared.gpus import COURSE_GPU, Gpu


@dataclass(frozen=True)
class Choices:
    """The decisions of a count of parameters, FLOPs or bytes; the defaults are the right ones."""

    # parameters
    embeddings: int = 1
    heads: int = 1
    routers: int = 1  # per layer
    projections: int = 4  # per layer
    expert_matrices: int = 3
    experts: str = "n_experts"  # which of the config's numbers counts the experts; "" is one
    layer_norms: int = 4
    final_norms: int = 1
    # FLOPs
    passes: int = 3  # forward, and twice as much backward
    flops_per_multiply_add: int = 2
    keys_per_token: float = 0.5  # of the sequence
    attention_products: int = 2  # scores and values
    # bytes
    bytes_per_number: int = 2


RIGHT = Choices()
ACTIVE = Choices(embeddings=0, experts="experts_per_token", layer_norms=0, final_norms=0)

Mistakes = dict[str, dict]  # words for the student -> what was decided otherwise

PARAM_MISTAKES: Mistakes = {
    "the norms are forgotten: four in each layer and a final one, d_model weights each": {
        "layer_norms": 0,
        "final_norms": 0,
    },
    "the norms of q and k are forgotten": {"layer_norms": 2},
    "the final norm is forgotten": {"final_norms": 0},
    "the routers are forgotten: one [n_experts, d_model] matrix in each layer": {"routers": 0},
    "the embedding and lm_head are counted once, but they are two matrices: no weights are tied": {
        "heads": 0
    },
    "each layer has one expert here; it has n_experts of them": {"experts": ""},
    "only experts_per_token experts are counted in each layer; param_count counts all of them": {
        "experts": "experts_per_token"
    },
    "an expert has two matrices here; it has three: gate, up and down": {"expert_matrices": 2},
    "attention has three matrices here; it has four: q, k, v and output": {"projections": 3},
}

ACTIVE_MISTAKES: Mistakes = {
    "the routers are forgotten: every token is multiplied by them": {"routers": 0},
    "the embedding is counted as active: a token only looks up one row of it": {"embeddings": 1},
    "all experts are counted: a token meets experts_per_token of them": {"experts": "n_experts"},
    "one expert is counted: a token meets experts_per_token of them": {"experts": ""},
    "the norms are counted as active: they are not matrices": {
        "layer_norms": 4,
        "final_norms": 1,
    },
    "lm_head is forgotten: every token is multiplied by it": {"heads": 0},
    "an expert has two matrices here; it has three: gate, up and down": {"expert_matrices": 2},
    "attention has three matrices here; it has four: q, k, v and output": {"projections": 3},
}

FLOPS_MISTAKES: Mistakes = {
    "the backward pass is forgotten: it does twice the arithmetic of the forward pass": {
        "passes": 1
    },
    "the backward pass is counted like another forward pass: it does twice as much": {"passes": 2},
    "recomputation is counted: flops_per_token is the model's own arithmetic": {"passes": 4},
    "a multiply-add is counted as one FLOP: it is two": {"flops_per_multiply_add": 1},
    "attention is counted in full: it is causal, so a token meets half of its sequence": {
        "keys_per_token": 1.0
    },
    "attention's scores and values are forgotten": {"attention_products": 0},
    "attention has one product per key here: it has two, the scores and the values": {
        "attention_products": 1
    },
    **ACTIVE_MISTAKES,
}


def params(cfg: OlmoeConfig, choices: Choices = RIGHT) -> int:
    """Numbers in the tensors that `choices` counts."""
    return sum(prod(shape) * copies for shape, copies in _tensors(cfg, choices))


def training_flops(cfg: OlmoeConfig, seqlen: int, choices: Choices = ACTIVE) -> float:
    """FLOPs per token: each active number once, and the products of attention with the keys."""
    keys = seqlen * choices.keys_per_token
    scores_and_values = cfg.n_layers * choices.attention_products * cfg.d_model * keys
    multiply_adds = params(cfg, choices) + scores_and_values
    return choices.passes * choices.flops_per_multiply_add * multiply_adds


def variants(right: Choices, mistakes: Mistakes) -> Iterator[tuple[str, Choices]]:
    """Every mistake, then every two that can be made together: (words, choices)."""
    for words, otherwise in mistakes.items():
        yield words, replace(right, **otherwise)
    for (one, a), (two, b) in combinations(mistakes.items(), 2):
        if not a.keys() & b.keys():
            yield f"{one}; and {two}", replace(right, **a, **b)


def sample_config(draw: Random) -> OlmoeConfig:
    """A small model of random shapes, in which no two mistakes come to the same number."""
    n_heads = draw.randint(2, 6)
    n_experts = draw.randint(9, 61)
    return OlmoeConfig(
        n_layers=draw.randint(2, 12),
        d_model=n_heads * 2 * draw.randint(8, 60),
        n_heads=n_heads,
        d_expert=draw.randint(65, 900),
        n_experts=n_experts,
        experts_per_token=draw.randint(2, n_experts // 2),
        vocab_size=draw.randint(5000, 60000),
    )


def sample_gpu(draw: Random) -> Gpu:
    """A GPU that is nobody's: both peaks are far from the course's."""
    return replace(
        COURSE_GPU,
        name="a GPU of the test",
        peak_tflops=round(COURSE_GPU.peak_tflops * draw.uniform(0.1, 0.5), 1),
        peak_gbs=round(COURSE_GPU.peak_gbs * draw.uniform(1.5, 3.0), 1),
    )


def _tensors(cfg: OlmoeConfig, choices: Choices) -> Iterator[tuple[tuple[int, ...], int]]:
    """(shape, how many of it) of everything that `choices` counts."""
    experts = getattr(cfg, choices.experts) if choices.experts else 1
    yield (cfg.vocab_size, cfg.d_model), choices.embeddings + choices.heads
    yield (cfg.d_model,), choices.final_norms
    for shape, copies in (
        ((cfg.d_model, cfg.d_model), choices.projections),
        ((cfg.n_experts, cfg.d_model), choices.routers),
        ((cfg.d_model, cfg.d_expert), choices.expert_matrices * experts),
        ((cfg.d_model,), choices.layer_norms),
    ):
        yield shape, copies * cfg.n_layers
