"""Training steps of a GPU that has never run one, from Part 1's measurements of it.

    predict_step_ms_on("NVIDIA L40", OlmoeConfig(n_layers=2), 8, 1024)

The predictor of Coding 9 knows the course's GPU. Each of its terms is bound by one resource:

- arithmetic: it scales with the time of a large GEMM that both GPUs have been measured at. Best is
  lm_head's of 4096 rows, which a step has in it: 8192^3, run for seconds, holds a GPU at its power
  limit, and a step does not do that to every GPU;
- bytes: they take the longer of the memory's time (adding two large tensors) and the SMs', whose
  instructions bind kernels on a GPU with more bandwidth per SM than they can ask for;
- launches: they scale with the time of a small GEMM.

Two more differences are in the software, not in the figures. `grouped_mm` is one kernel on compute
capability 9.0 alone; elsewhere it is a loop of one GEMM per expert, and each waits to be launched.
And the attention kernel does not use Hopper's own tensor core instructions, so that on a Hopper it
stays further below a large GEMM than elsewhere.

Memory needs no scaling: the same tensors are allocated on every GPU, except for cuBLAS's workspace.
The published peaks, however, are of another implementation of the model, which keeps more of every
layer for its backward pass: `keeps_more_bytes` says how much.
"""

from dataclasses import dataclass, replace

from a1 import perfmodel
from a1.perfmodel import H200, Rates, gemm_bytes, gemm_flops, rows_per_expert
from olmoe.config import OlmoeConfig
from shared.gpus import Gpu
from shared.gpus import gpu as data_sheet


@dataclass(frozen=True)
class Part1:
    """What regimes.py and bench_gemm.py measured on a GPU."""

    large_gemm_ms: float  # 8192^3
    large_add_ms: float  # two tensors of 1 GiB into a third
    small_gemm_ms: float  # 64 x 2048 x 1024
    source: str
    lm_head_ms: float | None = None  # 4096 x 2048 x 50304


PART1 = {
    "NVIDIA H200": Part1(1.3110, 0.7353, 0.0212, "staff/results/a1", 1.24197),
    "NVIDIA L40": Part1(10.8910, 4.8808, 0.0153, "published with the assignment", 7.6170),
    "NVIDIA GeForce RTX 5090": Part1(4.9836, 2.0478, 0.0062, "published with the assignment"),
}
KNOWN = "NVIDIA H200"
ONE_KERNEL = ("9.0",)  # compute capabilities on which grouped_mm is one
NATIVE_ATTENTION = 2.0  # times closer to a large GEMM where its instructions are the GPU's own
ADDED_BYTES = 3 * 2**30
HOPPER_WORKSPACE_BYTES, WORKSPACE_BYTES = 2 * 32 * 2**20, 2 * 8519680  # of cuBLAS, two threads
PUBLISHED_ROWS, PUBLISHED_TOKENS = (
    2,
    2,
)  # activations that the published model keeps more, see below
RUNTIME_GIB = 0.5  # CUDA's context and the libraries' code, which no tensor may use


def predict_step_ms_on(
    gpu: str, cfg: OlmoeConfig, micro_batch_size: int, seqlen: int, recompute: bool = False
) -> float:
    """GPU time, in milliseconds, of one `train_step` on the GPU of this name.

    Raises KeyError for a GPU without Part 1's measurements, shared.gpus.UnknownGpuError for one
    without a data sheet.
    """
    sheet = data_sheet(gpu)
    rates = rates_of(sheet)
    step_ms = perfmodel.step_ms(rates, cfg, micro_batch_size, seqlen, recompute)
    if sheet.compute_capability in ONE_KERNEL:
        return step_ms
    return step_ms + _loop_excess_ms(sheet, rates, cfg, micro_batch_size * seqlen, recompute)


def predict_peak_gib_on(
    gpu: str, cfg: OlmoeConfig, micro_batch_size: int, seqlen: int, recompute: bool = False
) -> float:
    """Peak of the GPU memory allocated during one `train_step`, in GiB, on this GPU."""
    peak_gib = perfmodel.predict_peak_gib(cfg, micro_batch_size, seqlen, recompute)
    if data_sheet(gpu).architecture == "Hopper":
        return peak_gib
    return peak_gib - (HOPPER_WORKSPACE_BYTES - WORKSPACE_BYTES) / 2**30


def keeps_more_bytes(cfg: OlmoeConfig, tokens: int) -> float:
    """What the model of the published figures keeps besides what this one does, in all layers.

    Found from its peaks without recomputation: two activations of every row of the experts, as if
    outputs were weighted and permuted after the GEMMs, and two of every token.
    """
    rows = PUBLISHED_ROWS * cfg.experts_per_token * cfg.d_model
    return cfg.n_layers * tokens * 2 * (rows + PUBLISHED_TOKENS * cfg.d_model)


def fits(
    gpu: str, cfg: OlmoeConfig, micro_batch_size: int, seqlen: int, recompute: bool = False
) -> bool:
    """Whether the step's peak leaves room for what is not the allocator's."""
    peak_gib = predict_peak_gib_on(gpu, cfg, micro_batch_size, seqlen, recompute)
    return peak_gib + RUNTIME_GIB <= data_sheet(gpu).memory_gib


def rates_of(sheet: Gpu) -> Rates:
    """The course's GPU's rates, scaled to another's resources."""
    here, there = PART1[KNOWN], PART1[sheet.name]
    arithmetic = here.large_gemm_ms / there.large_gemm_ms
    if here.lm_head_ms and there.lm_head_ms:
        arithmetic = here.lm_head_ms / there.lm_head_ms
    launches = there.small_gemm_ms / here.small_gemm_ms
    if sheet.name == KNOWN:
        return H200
    known = data_sheet(KNOWN)
    instructions = sheet.sms * sheet.max_sm_mhz / (known.sms * known.max_sm_mhz)
    memory_gbs = ADDED_BYTES / there.large_add_ms / 1e6

    def bytes_at(known_gbs: float) -> float:
        return min(memory_gbs, known_gbs * instructions)

    return replace(
        H200,
        gemm_tflops=H200.gemm_tflops * arithmetic,
        expert_tflops=H200.expert_tflops * arithmetic,
        weight_gbs=bytes_at(H200.weight_gbs),
        attention_tflops=H200.attention_tflops * arithmetic * NATIVE_ATTENTION,
        attention_us_per_key=H200.attention_us_per_key * known.max_sm_mhz / sheet.max_sm_mhz,
        forward_gbs=bytes_at(H200.forward_gbs),
        backward_gbs=bytes_at(H200.backward_gbs),
        loss_gbs=bytes_at(H200.loss_gbs),
        optimizer_gbs=bytes_at(H200.optimizer_gbs),
        **{
            name: getattr(H200, name) * launches
            for name in (
                "forward_ms",
                "backward_ms",
                "ends_ms",
                "optimizer_ms",
                "host_forward_ms",
                "host_backward_ms",
                "host_recompute_ms",
                "host_step_ms",
            )
        },
    )


def _loop_excess_ms(
    sheet: Gpu, rates: Rates, cfg: OlmoeConfig, tokens: int, recompute: bool
) -> float:
    """What one GEMM per expert takes longer than one kernel for all: each is launched by itself."""
    launch_ms = PART1[sheet.name].small_gemm_ms
    rows = rows_per_expert(cfg, tokens)
    excess_ms = 0.0
    for k, n in ((cfg.d_model, 2 * cfg.d_expert), (cfg.d_expert, cfg.d_model)):
        alone_ms = max(
            gemm_flops(rows, k, n) / (rates.expert_tflops * 1e9),
            gemm_bytes(rows, k, n) / (rates.weight_gbs * 1e6),
        )
        excess_ms += cfg.n_experts * max(0.0, launch_ms - alone_ms)
    passes = 4 if recompute else 3  # forward, twice backward, and the forward again
    return cfg.n_layers * passes * excess_ms
