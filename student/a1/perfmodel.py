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
    raise NotImplementedError("Coding 2: gemm_flops")


def gemm_bytes(m: int, k: int, n: int) -> int:
    """Bytes that C = A @ B must move at least: read A and B once, and write C once.

    A is [m, k], B is [k, n] and C is [m, n], all in bf16.
    """
    raise NotImplementedError("Coding 2: gemm_bytes")


def roofline_tflops(flops: float, nbytes: float, gpu: Gpu = COURSE_GPU) -> float:
    """The most TFLOP/s that a kernel can reach which performs `flops` and moves `nbytes` bytes.

    Whichever binds first: the GPU's peak compute, or its peak bandwidth at the kernel's arithmetic
    intensity. `nbytes` is positive.
    """
    raise NotImplementedError("Coding 2: roofline_tflops")


# -------------------------------------------------------- Coding Exercise 3: the model in numbers


def param_count(cfg: OlmoeConfig) -> int:
    """Parameters of the whole model: every number that training changes.

    The embedding and `lm_head` are two matrices of their own, [vocab_size, d_model] each. A layer
    has four [d_model, d_model] projections in its attention, a router [n_experts, d_model], three
    matrices of d_model x d_expert per expert, and four norms, each with one weight per channel of
    d_model: attn_norm, moe_norm, and the norms of q and k. One more norm precedes `lm_head`.
    Nothing has a bias.
    """
    raise NotImplementedError("Coding 3: param_count")


def active_params(cfg: OlmoeConfig) -> int:
    """Weights that one token is multiplied by: those of the matrices it meets on its way.

    They are, in every layer, the attention's projections, the router, and the matrices of the
    `experts_per_token` experts it is sent to; and `lm_head`. The embedding does not count, since a
    token only looks up a row of it, and neither do the norms, which are no matrices.
    """
    raise NotImplementedError("Coding 3: active_params")


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
    raise NotImplementedError("Coding 3: flops_per_token")


def rows_per_expert(cfg: OlmoeConfig, tokens: int) -> float:
    """Rows that one expert's GEMMs have on average, when `tokens` tokens go through a layer.

    Every token is sent to `experts_per_token` of the `n_experts` experts. The mean need not be a
    whole number: do not round it.
    """
    raise NotImplementedError("Coding 3: rows_per_expert")


def forward_floor_ms(
    cfg: OlmoeConfig, micro_batch_size: int, seqlen: int, gpu: Gpu = COURSE_GPU
) -> tuple[float, float]:
    """Two lower bounds, in milliseconds, on the time of one forward pass: (compute, memory).

    The pass takes micro_batch_size sequences of `seqlen` tokens each.
    - compute: its FLOPs, the forward third of `flops_per_token`, at the GPU's peak compute;
    - memory: reading each of the model's `param_count` weights once at its peak bandwidth.
    """
    raise NotImplementedError("Coding 3: forward_floor_ms")


# --------------------------------------------- Coding Exercise 8: training state and optimizer


def state_bytes(cfg: OlmoeConfig) -> int:
    """Bytes of the training state: each weight, its gradient, and AdamW's two moments of it."""
    raise NotImplementedError("Coding 8: state_bytes")


def optimizer_floor_ms(cfg: OlmoeConfig, gpu: Gpu = COURSE_GPU) -> float:
    """A lower bound, in milliseconds, on one step of AdamW: its bytes at the GPU's peak bandwidth.

    For every parameter the step reads the weight, the gradient and the two moments, and writes the
    weight and the two moments, once each. It does not write the gradient.
    """
    raise NotImplementedError("Coding 8: optimizer_floor_ms")


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
    raise NotImplementedError("Coding 9: predict_step_ms")


def predict_peak_gib(
    cfg: OlmoeConfig, micro_batch_size: int, seqlen: int, recompute: bool = False
) -> float:
    """Peak of the GPU memory allocated during one `train_step`, in GiB, as a1/sweep.py has it.

    That is `torch.cuda.max_memory_allocated()`, of the same steps as `predict_step_ms`, and it
    includes the training state. The gradients of the step before are gone when a step begins.

    Plain arithmetic only, as for `predict_step_ms`.
    """
    raise NotImplementedError("Coding 9: predict_peak_gib")
