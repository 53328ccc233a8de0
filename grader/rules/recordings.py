"""What each recording was asked to hold, and how its files are read together."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

import pandas as pd

from olmoe.config import OlmoeConfig
from shared.artifacts import recordings
from shared.gpus import Gpu

from .experiment import Results
from .floors import REBUILT, Step, compute_ms

RECOMPUTE = "recompute."  # what ranges of a recomputation are called
ONCE = ("step", "forward", "embed", "norm", "lm_head", "optimizer")  # per step
PER_LAYER = ("layers.*", "layers.*.attn_norm", "layers.*.attn", "layers.*.moe_norm", "layers.*.moe",
             "router", "experts")  # fmt: skip
INSIDE = {  # a range -> the one around it
    "forward": "step",
    "optimizer": "step",
    "(backward)": "step",
    **dict.fromkeys(("embed", "layers.*", "norm", "lm_head"), "forward"),
    **{part: "layers.*" for part in PER_LAYER if part.startswith("layers.*.")},
    **dict.fromkeys(("router", "experts"), "layers.*.moe"),
}


@dataclass(frozen=True)
class Recorded:
    """A recording, as the command of its experiment asks for it."""

    train: bool
    layers: int
    micro_batch_size: int
    seqlen: int
    recompute: bool
    naive: bool

    def __str__(self) -> str:
        what = "training step" if self.train else "forward pass"
        return f"a {what} of {self.layers} layers and {self.micro_batch_size} x {self.seqlen}"

    def floors_ms(self, gpu: Gpu) -> dict[str, float]:
        """Folded range -> the least GPU time per step that its arithmetic, or traffic, needs."""
        tokens, cfg = self.micro_batch_size * self.seqlen, OlmoeConfig()
        step = Step(self.layers, tokens, self.seqlen, self.recompute, gpu)

        def of_matrices(numbers: int) -> float:
            return compute_ms(2.0 * tokens * numbers, gpu)

        experts = of_matrices(self.layers * cfg.experts_per_token * 3 * cfg.d_model * cfg.d_expert)
        floors = {
            "forward": step.forward_ms,
            "lm_head": of_matrices(cfg.vocab_size * cfg.d_model),
            "experts": experts,
            "layers.*.moe": experts,
            "layers.*.attn": of_matrices(self.layers * 4 * cfg.d_model**2),
        }
        if not self.train:
            return floors | {"step": step.forward_ms}
        return floors | {
            "step": step.step_ms,
            "(backward)": step.backward_ms,
            "optimizer": step.optimizer_ms,
            f"{RECOMPUTE}layers.*": step.recompute_ms,
            f"{RECOMPUTE}experts": REBUILT * experts,
        }


def _asked(command: str) -> Recorded:
    """What a command like "a1/nsys.sh fwd_small --micro-batch-size 1 --seqlen 512" asks for."""
    words = shlex.split(command)

    def value(option: str, default: object) -> str:
        return words[words.index(option) + 1] if option in words else str(default)

    return Recorded(
        train=value("--mode", "forward") == "train",
        layers=int(value("--layers", OlmoeConfig().n_layers)),
        micro_batch_size=int(value("--micro-batch-size", 1)),
        seqlen=int(value("--seqlen", 512)),
        recompute="--recompute" in words,
        naive=value("--moe-impl", "grouped") == "naive",
    )


RECORDED = {name: _asked(entry["command"]) for name, entry in recordings().items()}


def by_range(results: Results, recording: str) -> pd.DataFrame:
    """The recording's table of ranges, by folded name, with the line in the file as a column."""
    frame = results.frame(f"{recording}_ranges")
    return frame.reset_index().drop_duplicates("range").set_index("range")


def fold(name: str) -> str:
    """`layers.3.attn` -> `layers.*.attn`, as a1/ranges.py adds ranges up."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name)


def folded_trace(results: Results, recording: str) -> pd.DataFrame:
    """The recording's trace added up: per folded name, gpu_ms, gpu_ops and instances per step.

    Empty for a trace without a range called `step`.
    """
    trace = results.frame(f"{recording}_nvtx_gpu_proj_trace")
    names = trace["Name"].map(fold)
    steps = int((names == "step").sum())
    groups = trace.groupby(names)
    sums = pd.DataFrame(
        {
            "gpu_ms_per_step": groups["Projected Duration (ns)"].sum() / 1e6,
            "gpu_ops": groups["NumGPUOps"].sum(),
            "instances": groups.size(),
        }
    )
    return sums / steps if steps else sums.iloc[:0]


def steps_in(results: Results, recording: str) -> int:
    """How many steps were recorded; 0 if the trace cannot be read."""
    name = f"{recording}_nvtx_gpu_proj_trace"
    return int((results.frame(name)["Name"] == "step").sum()) if results.has(name) else 0
