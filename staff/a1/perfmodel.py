"""A performance model of OLMoE: what one operation, one pass and one training step should cost.

Everything here is plain arithmetic on Python numbers. No function runs a GPU, reads a file or
imports torch. Units: a FLOP is one floating-point operation, and a multiply-add is two of them.
1 TFLOP/s is 1e12 FLOP/s, 1 GB/s is 1e9 bytes/s, 1 GiB is 2**30 bytes. All numbers of the model
(weights, activations, gradients, AdamW's moments) are bf16: 2 bytes each.

`cfg` is an `OlmoeConfig` (olmoe/config.py). The functions must work for any of them, not only for
OLMoE's own shapes. `gpu` is a data sheet (shared/gpus.py): `gpu.peak_tflops` TFLOP/s of bf16
arithmetic and `gpu.peak_gbs` GB/s of memory bandwidth. Its default is the course's GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from olmoe.config import OlmoeConfig
from shared.gpus import COURSE_GPU, Gpu

# ------------------------------------------------------------------- Coding Exercise 2: one GEMM


def gemm_flops(m: int, k: int, n: int) -> int:
    """FLOPs of C = A @ B, where A is [m, k], B is [k, n] and C is [m, n].

    Every element of C takes k multiply-adds, and a multiply-add counts as 2 FLOPs.
    """
    # BEGIN SOLUTION
    return 2 * m * k * n
    # END SOLUTION


def gemm_bytes(m: int, k: int, n: int) -> int:
    """Bytes that C = A @ B must move at least: read A and B once, and write C once.

    A is [m, k], B is [k, n] and C is [m, n], all in bf16.
    """
    # BEGIN SOLUTION
    return 2 * (m * k + k * n + m * n)
    # END SOLUTION


def roofline_tflops(flops: float, nbytes: float, gpu: Gpu = COURSE_GPU) -> float:
    """The most TFLOP/s that a kernel can reach which performs `flops` and moves `nbytes` bytes.

    Whichever binds first: the GPU's peak compute, or its peak bandwidth at the kernel's arithmetic
    intensity. `nbytes` is positive.
    """
    # BEGIN SOLUTION
    flops_per_byte = flops / nbytes
    return min(gpu.peak_tflops, flops_per_byte * gpu.peak_gbs / 1e3)
    # END SOLUTION


# -------------------------------------------------------- Coding Exercise 3: the model in numbers


def param_count(cfg: OlmoeConfig) -> int:
    """Parameters of the whole model: every number that training changes.

    The embedding and `lm_head` are two matrices of their own, [vocab_size, d_model] each. A layer
    has four [d_model, d_model] projections in its attention, a router [n_experts, d_model], three
    matrices of d_model x d_expert per expert, and four norms, each with one weight per channel of
    d_model: attn_norm, moe_norm, and the norms of q and k. One more norm precedes `lm_head`.
    Nothing has a bias.
    """
    # BEGIN SOLUTION
    embed_and_head = 2 * cfg.vocab_size * cfg.d_model
    norms = 4 * cfg.d_model
    experts = cfg.n_experts * _expert_params(cfg)
    layer = _attention_params(cfg) + _router_params(cfg) + experts + norms
    return embed_and_head + cfg.n_layers * layer + cfg.d_model
    # END SOLUTION


def active_params(cfg: OlmoeConfig) -> int:
    """Weights that one token is multiplied by: those of the matrices it meets on its way.

    They are, in every layer, the attention's projections, the router, and the matrices of the
    `experts_per_token` experts it is sent to; and `lm_head`. The embedding does not count, since a
    token only looks up a row of it, and neither do the norms, which are no matrices.
    """
    # BEGIN SOLUTION
    experts = cfg.experts_per_token * _expert_params(cfg)
    layer = _attention_params(cfg) + _router_params(cfg) + experts
    return cfg.n_layers * layer + cfg.vocab_size * cfg.d_model
    # END SOLUTION


def flops_per_token(cfg: OlmoeConfig, seqlen: int) -> float:
    """FLOPs of training on one token of a sequence of `seqlen` tokens: forward plus backward.

    The model's arithmetic, by the usual convention of MFU:
    - every active parameter takes part in one multiply-add of the forward pass;
    - so does attention, which is causal: a token meets seqlen / 2 keys on average. For each of
      them it takes d_model multiply-adds to compute the scores (q times k, all heads together),
      and d_model more to add up the values;
    - the backward pass does twice the arithmetic of the forward pass;
    - what recomputation repeats is not counted, and nor are norms, softmax and the optimizer.
    """
    # BEGIN SOLUTION
    attention = cfg.n_layers * 2 * cfg.d_model * seqlen / 2  # multiply-adds
    forward = 2 * (active_params(cfg) + attention)
    return 3 * forward
    # END SOLUTION


def rows_per_expert(cfg: OlmoeConfig, tokens: int) -> float:
    """Rows that one expert's GEMMs have on average, when `tokens` tokens go through a layer.

    Every token is sent to `experts_per_token` of the `n_experts` experts. The mean need not be a
    whole number: do not round it.
    """
    # BEGIN SOLUTION
    return tokens * cfg.experts_per_token / cfg.n_experts
    # END SOLUTION


def forward_floor_ms(
    cfg: OlmoeConfig, micro_batch_size: int, seqlen: int, gpu: Gpu = COURSE_GPU
) -> tuple[float, float]:
    """Two lower bounds, in milliseconds, on the time of one forward pass: (compute, memory).

    The pass takes micro_batch_size sequences of `seqlen` tokens each.
    - compute: its FLOPs, the forward third of `flops_per_token`, at the GPU's peak compute;
    - memory: reading each of the model's `param_count` weights once at its peak bandwidth.
    """
    # BEGIN SOLUTION
    flops = micro_batch_size * seqlen * flops_per_token(cfg, seqlen) / 3
    compute_ms = flops / (gpu.peak_tflops * 1e12) * 1e3
    memory_ms = 2 * param_count(cfg) / (gpu.peak_gbs * 1e9) * 1e3
    return compute_ms, memory_ms
    # END SOLUTION


# BEGIN SOLUTION
def _attention_params(cfg: OlmoeConfig) -> int:
    """Weights of one layer's q, k, v and output projections."""
    return 4 * cfg.d_model * cfg.d_model


def _router_params(cfg: OlmoeConfig) -> int:
    return cfg.n_experts * cfg.d_model


def _expert_params(cfg: OlmoeConfig) -> int:
    """Weights of one expert's gate, up and down projections."""
    return 3 * cfg.d_model * cfg.d_expert


# END SOLUTION


# --------------------------------------------- Coding Exercise 8: training state and optimizer


def state_bytes(cfg: OlmoeConfig) -> int:
    """Bytes of the training state: each weight, its gradient, and AdamW's two moments of it."""
    # BEGIN SOLUTION
    return 4 * 2 * param_count(cfg)
    # END SOLUTION


def optimizer_floor_ms(cfg: OlmoeConfig, gpu: Gpu = COURSE_GPU) -> float:
    """A lower bound, in milliseconds, on one step of AdamW: its bytes at the GPU's peak bandwidth.

    For every parameter the step reads the weight, the gradient and the two moments, and writes the
    weight and the two moments, once each. It does not write the gradient.
    """
    # BEGIN SOLUTION
    read, written = 4, 3  # numbers per parameter
    nbytes = 2 * (read + written) * param_count(cfg)
    return nbytes / (gpu.peak_gbs * 1e9) * 1e3
    # END SOLUTION


# -------------------------------------------------- Coding Exercise 9: predicting a training step


def predict_step_ms(
    cfg: OlmoeConfig, micro_batch_size: int, seqlen: int, recompute: bool = False
) -> float:
    """GPU time, in milliseconds, of one `train_step` on the course's GPU, as a1/sweep.py has it.

    The step's global batch is a single micro batch of `micro_batch_size` sequences of `seqlen`
    tokens. With `recompute`, every layer's forward runs a second time during the backward pass.
    The model has `cfg.n_layers` layers (1 to 8); its other shapes are OLMoE's. A step has up to
    16,384 tokens, in sequences of up to 4096.

    Plain arithmetic only: a prediction that takes longer than a second, opens a file or the
    network, starts a process or uses a GPU counts as wrong.
    """
    # BEGIN SOLUTION
    return step_ms(H200, cfg, micro_batch_size, seqlen, recompute)
    # END SOLUTION


def predict_peak_gib(
    cfg: OlmoeConfig, micro_batch_size: int, seqlen: int, recompute: bool = False
) -> float:
    """Peak of the GPU memory allocated during one `train_step`, in GiB, as a1/sweep.py has it.

    That is `torch.cuda.max_memory_allocated()`, of the same steps as `predict_step_ms`, and it
    includes the training state. The gradients of the step before are gone when a step begins.

    Plain arithmetic only, as for `predict_step_ms`.
    """
    # BEGIN SOLUTION
    tokens = micro_batch_size * seqlen
    peak_bytes = max(_peak_phases_bytes(cfg, tokens, recompute).values())
    return peak_bytes / 2**30
    # END SOLUTION


# BEGIN SOLUTION
@dataclass(frozen=True)
class Rates:
    """What a GPU, and the host that feeds it, achieve in this model's training step."""

    gemm_tflops: float  # GEMMs of thousands of rows
    expert_tflops: float  # the experts' grouped GEMMs, of whole tiles of rows
    weight_gbs: float  # GEMMs of few rows: how fast they read their weights
    attention_tflops: float  # the attention kernels, both ways
    attention_us_per_key: float  # the last block of queries meets all keys, while no other does
    forward_gbs: float  # norms, rotary, SwiGLU, permutations: whatever is no GEMM and no attention
    backward_gbs: float  # the same in the backward pass
    loss_gbs: float  # the fp32 passes over [tokens, vocabulary]
    forward_ms: float  # one layer's kernels when there is nothing to compute: they start and end
    backward_ms: float  # the same in the backward pass
    ends_ms: float  # the same for everything that is in no layer
    optimizer_gbs: float  # fused AdamW
    optimizer_ms: float  # the optimizer's kernels, with nothing to update
    host_forward_ms: float  # to launch one layer's forward
    host_backward_ms: float  # and its backward
    host_recompute_ms: float  # checkpoint and autograd add to what a forward takes
    host_step_ms: float  # to launch everything that is in no layer


# Fitted to the staff's experiments by staff/fit/fit_predictor.py.
H200 = Rates(
    gemm_tflops=721.5,
    expert_tflops=803.1,
    weight_gbs=3232.0,
    attention_tflops=290.9,
    attention_us_per_key=0.02291,
    forward_gbs=1680.0,
    backward_gbs=2415.0,
    loss_gbs=3048.0,
    forward_ms=0.1612,
    backward_ms=0.4099,
    ends_ms=0.1136,
    optimizer_gbs=2705.0,
    optimizer_ms=0.282,
    host_forward_ms=1.285,
    host_backward_ms=1.927,
    host_recompute_ms=1.97,
    host_step_ms=3.0,
)
TILE = 128  # rows that an expert's GEMM computes at once, wanted or not
WORKSPACE_BYTES = 64 * 2**20  # cuBLAS takes half for each of two threads: forward and backward


def step_ms(
    rates: Rates, cfg: OlmoeConfig, micro_batch_size: int, seqlen: int, recompute: bool
) -> float:
    """A step takes what the GPU has to do, or what the host takes to launch it, if that is more.

    The host runs ahead of the GPU across steps: while the GPU is in the optimizer, which is a few
    long kernels, the next forward is being launched. So the two are compared over a whole step.
    """
    terms = step_terms_ms(rates, cfg, micro_batch_size, seqlen, recompute)
    host_ms = rates.host_forward_ms + rates.host_backward_ms
    if recompute:
        host_ms += rates.host_recompute_ms
    return max(sum(terms.values()), rates.host_step_ms + cfg.n_layers * host_ms)


def step_terms_ms(
    rates: Rates, cfg: OlmoeConfig, micro_batch_size: int, seqlen: int, recompute: bool
) -> dict[str, float]:
    """The GPU's time in each part of a step, named as the columns of sweep.csv."""
    tokens = micro_batch_size * seqlen
    layer_ms = _layer_forward_ms(rates, cfg, tokens, seqlen)
    head_ms, head_backward_ms = _head_ms(rates, cfg, tokens)
    backward_ms = _layer_backward_ms(rates, cfg, tokens, seqlen)
    updated_ms = optimizer_floor_ms(cfg) * COURSE_GPU.peak_gbs / rates.optimizer_gbs
    return {
        "forward_ms": cfg.n_layers * layer_ms + head_ms + rates.ends_ms,
        "backward_ms": cfg.n_layers * backward_ms + head_backward_ms,
        "recompute_ms": cfg.n_layers * layer_ms if recompute else 0.0,
        "optimizer_ms": updated_ms + rates.optimizer_ms,
    }


def gemm_ms(rates: Rates, m: float, k: int, n: int) -> float:
    """One GEMM: its arithmetic, or its bytes."""
    return max(
        gemm_flops(m, k, n) / (rates.gemm_tflops * 1e9),
        gemm_bytes(m, k, n) / (rates.weight_gbs * 1e6),
    )


def _dense_ms(rates: Rates, cfg: OlmoeConfig, tokens: int) -> float:
    """The GEMMs of one layer's attention. (The router's is lost among the small kernels.)"""
    qkv = gemm_ms(rates, tokens, cfg.d_model, 3 * cfg.d_model)
    return qkv + gemm_ms(rates, tokens, cfg.d_model, cfg.d_model)


def _experts_ms(rates: Rates, cfg: OlmoeConfig, tokens: int, tile: int = TILE) -> float:
    """The grouped GEMMs of one layer, gate and up together, then down.

    An expert's last tile is half full on average, and every expert has at least one.
    """
    rows = rows_per_expert(cfg, tokens)
    computed = max(tile, rows + tile / 2)
    total_ms = 0.0
    for k, n in ((cfg.d_model, 2 * cfg.d_expert), (cfg.d_expert, cfg.d_model)):
        flops = cfg.n_experts * gemm_flops(computed, k, n)
        nbytes = cfg.n_experts * gemm_bytes(rows, k, n)
        total_ms += max(flops / (rates.expert_tflops * 1e9), nbytes / (rates.weight_gbs * 1e6))
    return total_ms


def _attention_ms(rates: Rates, cfg: OlmoeConfig, tokens: int, seqlen: int) -> float:
    """The attention kernel's forward: scores and values, causal."""
    flops = tokens * 2 * cfg.d_model * seqlen
    return flops / (rates.attention_tflops * 1e9) + rates.attention_us_per_key * seqlen / 1e3


def _elementwise_bytes(cfg: OlmoeConfig, tokens: int) -> float:
    """What one layer's forward reads and writes outside of GEMMs and attention."""
    copy, product = 2 + 2, 2 + 2 + 2  # bytes per number: one input or two, and an output
    norms = 2 * copy + 2 * (copy + copy)  # attn_norm and moe_norm; q and k, with their weights
    rotary = 2 * (copy + copy + product)  # q and k: times cos, roll, plus times sin
    residuals = 2 * product
    dispatch_and_combine = copy + copy + 2
    swiglu = copy + product + copy  # SiLU, times up, times the router's weight
    per_row = dispatch_and_combine * cfg.d_model + swiglu * cfg.d_expert
    per_token = (norms + rotary + residuals) * cfg.d_model + cfg.experts_per_token * per_row
    return tokens * per_token


def _layer_forward_ms(rates: Rates, cfg: OlmoeConfig, tokens: int, seqlen: int) -> float:
    gemms_ms = _dense_ms(rates, cfg, tokens) + _experts_ms(rates, cfg, tokens)
    elementwise_ms = _elementwise_bytes(cfg, tokens) / (rates.forward_gbs * 1e6)
    return gemms_ms + _attention_ms(rates, cfg, tokens, seqlen) + elementwise_ms + rates.forward_ms


def _layer_backward_ms(rates: Rates, cfg: OlmoeConfig, tokens: int, seqlen: int) -> float:
    """Two GEMMs for each of the forward's; attention computes its scores once more."""
    inputs_ms = _experts_ms(rates, cfg, tokens)
    weights_ms = _experts_ms(rates, cfg, tokens, tile=0)  # rows are summed over: no tiles of them
    gemms_ms = 2 * _dense_ms(rates, cfg, tokens) + inputs_ms + weights_ms
    attention_ms = 2.5 * _attention_ms(rates, cfg, tokens, seqlen)
    elementwise_ms = 2 * _elementwise_bytes(cfg, tokens) / (rates.backward_gbs * 1e6)
    return gemms_ms + attention_ms + elementwise_ms + rates.backward_ms


def _head_ms(rates: Rates, cfg: OlmoeConfig, tokens: int) -> tuple[float, float]:
    """lm_head and the loss, whose logits are fp32: forward, and backward."""
    logits_ms = gemm_ms(rates, tokens, cfg.d_model, cfg.vocab_size)
    cast, log_softmax = 2 + 4, 4 + 4
    zeros, softmax, cast_back = 4, 4 + 4 + 4, 4 + 2
    byte_ms = tokens * cfg.vocab_size / (rates.loss_gbs * 1e6)
    forward_ms = logits_ms + (cast + log_softmax) * byte_ms
    return forward_ms, 2 * logits_ms + (zeros + softmax + cast_back) * byte_ms


def _layer_activation_bytes(cfg: OlmoeConfig) -> int:
    """What one token leaves in one layer for the backward pass."""
    channels, rows = cfg.d_model, cfg.experts_per_token
    attention = (
        channels  # the layer's input
        + channels  # normalized
        + 3 * channels  # q, k and v
        + 2 * channels  # q and k, normalized
        + 2 * channels  # and rotated
        + channels  # the attention's output
    )
    experts = (
        2 * channels  # the input of moe_norm, and its output
        + rows * cfg.d_model  # copied to its experts
        + rows * 2 * cfg.d_expert  # gate and up
        + rows * 3 * cfg.d_expert  # SiLU of gate; times up; times the router's weight
    )
    softmax_sums = 4 * cfg.n_heads
    probabilities = 4 * cfg.n_experts
    routing = (4 * 8 + 2) * rows  # for each of its experts, four int64 and a weight
    return 2 * (attention + experts) + softmax_sums + probabilities + routing


def _peak_phases_bytes(cfg: OlmoeConfig, tokens: int, recompute: bool) -> dict[str, float]:
    """Bytes allocated at the moments of a step at which memory may peak.

    A gradient is allocated when it is computed: first lm_head's, last the embedding's.
    """
    weights_and_moments = 3 * 2 * param_count(cfg)
    matrix = 2 * cfg.vocab_size * cfg.d_model  # the embedding, or lm_head
    down = 2 * cfg.n_experts * cfg.d_expert * cfg.d_model
    gate_up = 2 * down
    layer = 2 * (_attention_params(cfg) + _router_params(cfg) + 4 * cfg.d_model) + down + gate_up
    token = 2 * cfg.d_model  # one activation of one token
    token_rows = cfg.experts_per_token * token  # the same, copied to its experts
    token_wide = cfg.experts_per_token * 2 * cfg.d_expert

    standing = weights_and_moments + WORKSPACE_BYTES + tokens * (2 * 2 * cfg.head_dim + 2 * 8)
    activations = _layer_activation_bytes(cfg)
    kept = token if recompute else activations
    # The loss's backward: log-softmax, its gradient, and that of the logits, all in fp32.
    loss = cfg.vocab_size * (4 + 4 + 4)
    phases = {"loss": standing + tokens * (cfg.n_layers * kept + 2 * token + loss)}
    for i in range(cfg.n_layers):
        above = standing + matrix + layer * (cfg.n_layers - 1 - i)
        below = i * kept + activations + token  # of one token; its gradient, too
        phases[f"layers.{i}, down"] = above + down + tokens * (below + token_rows + token_wide)
        freed = 3 * token_wide  # SiLU and the two products have been used
        phases[f"layers.{i}, gate and up"] = (
            above + down + gate_up + tokens * (below - freed + token_rows)
        )
        if recompute:  # the outputs of the experts, before they are added up
            phases[f"layers.{i}, recompute"] = above + tokens * (below + 2 * token_rows)
    phases["embed"] = standing + 2 * param_count(cfg) + tokens * token
    return phases


# END SOLUTION
