"""This model against transformers' OlmoeForCausalLM: speed, memory, and the logits.

    PYTHONPATH=staff:student:. python staff/bench/model_speed.py [--json FILE]
    PYTHONPATH=staff:student:. python staff/bench/model_speed.py --parity
    PYTHONPATH=staff:student:. python staff/bench/model_speed.py --tiny --device cpu

Both do the same work: random weights and tokens in bf16, the same sizes, full logits, and in
training the same loss and the same fused AdamW. They take turns, so that a GPU that warms up or
slows down does so for both. transformers runs its grouped_mm experts, which is its default.
`--parity` gives both the same weights, at the real size, and compares logits. `--tiny` is a dry
run that shows nothing about speed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import transformers

from a1.perfmodel import flops_per_token, forward_floor_ms, optimizer_floor_ms
from olmoe.config import OlmoeConfig
from olmoe.data import MicroBatch, random_micro_batch
from olmoe.load import pieces
from olmoe.model import Olmoe
from olmoe.prof import cuda_time
from olmoe.train import lm_loss, make_optimizer, train_step
from shared.gpus import COURSE_GPU, UnknownGpuError, gpu

OURS, THEIRS, COMPILED = "this model", "transformers", "transformers, compiled"


@dataclass(frozen=True)
class Workload:
    name: str  # "step" or "forward"
    cfg: OlmoeConfig
    micro_batch_size: int
    seqlen: int

    def __str__(self):
        sizes = f"{self.cfg.n_layers} layers, {self.micro_batch_size} x {self.seqlen}"
        return f"{'training step' if self.name == 'step' else 'forward'}, {sizes}"

    @property
    def flops(self) -> float:
        training = self.micro_batch_size * self.seqlen * flops_per_token(self.cfg, self.seqlen)
        return training if self.name == "step" else training / 3

    def floor_ms(self, sheet) -> float:
        """The least time of the arithmetic and the memory traffic that cannot be avoided."""
        compute_ms, memory_ms = forward_floor_ms(
            self.cfg, self.micro_batch_size, self.seqlen, sheet
        )
        if self.name == "step":
            return 3 * compute_ms + optimizer_floor_ms(self.cfg, sheet)
        return max(compute_ms, memory_ms)


@dataclass
class Contestant:
    name: str
    run: Callable[[], object]
    own_bytes: int = 0  # allocated between runs


@dataclass
class Row:
    workload: str
    contestant: str
    median_ms: float
    least_ms: float
    most_ms: float
    runs: int
    peak_gib: float | None  # of this contestant alone; None without a GPU
    mfu: float
    floor_ms: float
    speedup_of_ours: float  # this contestant's time over ours


# ---- transformers' model


def build_theirs(cfg: OlmoeConfig, device, dtype):
    sizes = transformers.OlmoeConfig(
        num_hidden_layers=cfg.n_layers,
        hidden_size=cfg.d_model,
        num_attention_heads=cfg.n_heads,
        intermediate_size=cfg.d_expert,  # its default doubles the experts
        num_experts=cfg.n_experts,
        num_experts_per_tok=cfg.experts_per_token,
        vocab_size=cfg.vocab_size,
        rms_norm_eps=cfg.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": cfg.rope_theta},
        pad_token_id=None,
        eos_token_id=None,
    )
    with torch.device(device):
        model = transformers.OlmoeForCausalLM._from_config(sizes, dtype=dtype)
    model.set_experts_implementation("grouped_mm")
    if model.config._experts_implementation != "grouped_mm":
        raise RuntimeError(f"transformers chose {model.config._experts_implementation!r} experts")
    return model


def check_same_size(ours: Olmoe, theirs) -> int:
    counts = [sum(p.numel() for p in model.parameters()) for model in (ours, theirs)]
    if counts[0] != counts[1]:
        raise RuntimeError(f"not the same model: {counts[0]:,} and {counts[1]:,} parameters")
    return counts[0]


@torch.no_grad()
def copy_weights(ours: Olmoe, theirs) -> None:
    """In memory, transformers has the names of files in which experts are stacked."""
    source, target = dict(ours.named_parameters()), dict(theirs.named_parameters())
    for piece in pieces(ours, stacked=frozenset(range(ours.cfg.n_layers))):
        target.pop(piece.name).copy_(source[piece.parameter][piece.index])
    if target:
        raise RuntimeError(f"left random: {sorted(target)}")


# ---- Speed


def allocated_bytes(device: torch.device) -> int:
    return torch.cuda.memory_allocated() if device.type == "cuda" else 0


def contestants(workload: Workload, device, compiled: bool) -> list[Contestant]:
    micro_batch = random_micro_batch(
        workload.cfg, workload.micro_batch_size, workload.seqlen, device
    )
    found = []
    before = allocated_bytes(device)
    ours = Olmoe(workload.cfg, device=device, dtype=torch.bfloat16)
    found.append(Contestant(OURS, run_of_ours(workload, ours, micro_batch)))
    settle(found[-1], before, device)

    before = allocated_bytes(device)
    theirs = build_theirs(workload.cfg, device, torch.bfloat16).train(workload.name == "step")
    check_same_size(ours, theirs)
    optimizer = make_optimizer(theirs) if workload.name == "step" else None
    found.append(Contestant(THEIRS, run_of_theirs(workload, theirs, optimizer, micro_batch)))
    settle(found[-1], before, device)
    if compiled:  # the same weights and optimizer state
        run = run_of_theirs(workload, torch.compile(theirs), optimizer, micro_batch)
        found.append(Contestant(COMPILED, run))
        settle(found[-1], before, device)
    return found


def run_of_ours(workload: Workload, model: Olmoe, micro_batch: MicroBatch) -> Callable:
    if workload.name == "step":
        optimizer = make_optimizer(model)
        return lambda: train_step(model, optimizer, micro_batch)

    @torch.no_grad()
    def forward():
        model(micro_batch.tokens, micro_batch.seqs)

    return forward


def run_of_theirs(workload: Workload, model, optimizer, micro_batch: MicroBatch) -> Callable:
    # Sequences of one length: transformers' own layout, [micro batch size, seqlen].
    tokens = micro_batch.tokens.view(workload.micro_batch_size, workload.seqlen)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = lm_loss(
            model(tokens, use_cache=False).logits.flatten(0, 1),
            micro_batch.targets,
            micro_batch.n_targets,
        )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    @torch.no_grad()
    def forward():
        model(tokens, use_cache=False)

    return step if workload.name == "step" else forward


def settle(contestant: Contestant, before: int, device) -> None:
    for _ in range(3):
        contestant.run()
    contestant.own_bytes = allocated_bytes(device) - before


def peak_gib(contestant: Contestant, device) -> float | None:
    if device.type != "cuda":
        return None
    others = allocated_bytes(device) - contestant.own_bytes
    torch.cuda.reset_peak_memory_stats()
    contestant.run()
    return (torch.cuda.max_memory_allocated() - others) / 2**30


def times_ms(run: Callable, repeats: int, device) -> list[float]:
    if device.type == "cuda":
        return cuda_time(run, warmup=1, repeats=repeats)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def compare(workload: Workload, device, sheet, *, compiled: bool, rounds: int, repeats: int):
    """The contestants' rows, after they have taken turns."""
    print(f"{workload} ...", flush=True)
    field = contestants(workload, device, compiled)
    times: dict[str, list[float]] = {c.name: [] for c in field}
    for turn in range(rounds):
        for contestant in field if turn % 2 == 0 else reversed(field):
            times[contestant.name] += times_ms(contestant.run, repeats, device)
    ours_ms = statistics.median(times[OURS])
    for contestant in field:
        own = times[contestant.name]
        median_ms = statistics.median(own)
        yield Row(
            workload=str(workload),
            contestant=contestant.name,
            median_ms=median_ms,
            least_ms=min(own),
            most_ms=max(own),
            runs=len(own),
            peak_gib=peak_gib(contestant, device),
            mfu=workload.flops / (median_ms / 1e3) / (sheet.peak_tflops * 1e12),
            floor_ms=workload.floor_ms(sheet),
            speedup_of_ours=median_ms / ours_ms,
        )


def print_table(rows: list[Row]) -> None:
    print(
        f"\n{'workload':<38}{'model':<24}{'ms':>8}{'least':>8}{'most':>8}"
        f"{'GiB':>7}{'MFU':>7}{'floor ms':>10}{'ours is':>9}"
    )
    for r in rows:
        peak = "-" if r.peak_gib is None else f"{r.peak_gib:.1f}"
        print(
            f"{r.workload:<38}{r.contestant:<24}{r.median_ms:>8.2f}{r.least_ms:>8.2f}"
            f"{r.most_ms:>8.2f}{peak:>7}{r.mfu:>7.1%}{r.floor_ms:>10.2f}"
            f"{r.speedup_of_ours:>8.2f}x"
        )


# ---- The logits


@torch.no_grad()
def parity(cfg: OlmoeConfig, micro_batch_size: int, seqlen: int, device) -> dict:
    """Differences of logits in bf16 with the same weights, and of both from float32."""
    micro_batch = random_micro_batch(cfg, micro_batch_size, seqlen, device)
    ours = Olmoe(cfg, device=device, dtype=torch.bfloat16)
    theirs = build_theirs(cfg, device, torch.bfloat16).eval()
    result = {"parameters": check_same_size(ours, theirs)}
    copy_weights(ours, theirs)
    logits = {OURS: ours(micro_batch.tokens, micro_batch.seqs).float()}
    tokens = micro_batch.tokens.view(micro_batch_size, seqlen)
    logits[THEIRS] = theirs(tokens, use_cache=False).logits.flatten(0, 1).float()
    del theirs
    result["naive"] = difference(
        as_naive(ours)(micro_batch.tokens, micro_batch.seqs).float(), logits[OURS]
    )
    result["bf16"] = difference(logits[OURS], logits[THEIRS])
    try:
        exact = Olmoe(cfg, device=device, dtype=torch.float32)
        for wide, narrow in zip(exact.parameters(), ours.parameters(), strict=True):
            wide.copy_(narrow)
        reference = exact(micro_batch.tokens, micro_batch.seqs)
    except torch.cuda.OutOfMemoryError:
        print("the float32 reference does not fit on this GPU")
        return result
    for name, seen in logits.items():
        result[f"float32 and {name}"] = difference(seen, reference)
    return result


def as_naive(model: Olmoe) -> Olmoe:
    for layer in model.layers:
        layer.moe.moe_impl = "naive"
    return model


def difference(seen: torch.Tensor, reference: torch.Tensor) -> dict[str, float]:
    per_token = (seen - reference).norm(dim=1) / reference.norm(dim=1)
    return {
        "relative_norm": ((seen - reference).norm() / reference.norm()).item(),
        "median_over_tokens": per_token.median().item(),
        "worst_token": per_token.max().item(),
        "largest": (seen - reference).abs().max().item(),
        "same_argmax": (seen.argmax(1) == reference.argmax(1)).float().mean().item(),
    }


def print_parity(result: dict) -> None:
    print(f"\nlogits, {result['parameters']:,} parameters")
    keys = ("relative_norm", "median_over_tokens", "worst_token", "largest", "same_argmax")
    print(f"{'':<36}" + "".join(f"{key.replace('_', ' '):>20}" for key in keys))
    labels = {"bf16": "this model and transformers, bf16", "naive": "naive and grouped, bf16"}
    for name, values in result.items():
        if isinstance(values, dict):
            print(f"{labels.get(name, name):<36}" + "".join(f"{values[k]:>20.3g}" for k in keys))


# ---- The command


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a small model: a dry run")
    parser.add_argument("--parity", action="store_true", help="compare logits instead of speed")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--rounds", type=int, default=6, help="turns that each one takes")
    parser.add_argument("--repeats", type=int, default=5, help="runs in one turn")
    parser.add_argument("--json", type=Path, help="also write everything to this file")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)

    cfg, sizes = OlmoeConfig(), {"step": [(4, 2048)], "forward": [(1, 512), (32, 512)]}
    if arguments.tiny:
        cfg = OlmoeConfig(4, 64, 4, 32, 8, 2, 512)
        sizes = {"step": [(2, 16)], "forward": [(1, 16), (4, 16)]}
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    try:
        sheet = gpu(name)
    except UnknownGpuError:
        sheet = COURSE_GPU
    about = {
        "gpu": name,
        "peaks_of": sheet.name,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "arguments": {k: str(v) for k, v in vars(arguments).items()},
    }
    print(
        f"{about['gpu']} (MFU and floor: peaks of {sheet.name}), torch {about['torch']}, "
        f"transformers {about['transformers']}, {about['date']}"
    )
    if arguments.parity:
        result = parity(cfg, *((4, 16) if arguments.tiny else (4, 512)), device)
        print_parity(result)
        about["parity"] = result
    else:
        rows = []
        for kind, shapes in sizes.items():
            for shape in shapes:
                sized = cfg.with_layers(4) if kind == "step" else cfg
                compiled = kind == "step" and not arguments.no_compile
                workload = Workload(kind, sized, *shape)
                rows += compare(
                    workload,
                    device,
                    sheet,
                    compiled=compiled,
                    rounds=arguments.rounds,
                    repeats=arguments.repeats,
                )
                if device.type == "cuda":
                    torch.cuda.empty_cache()
        print_table(rows)
        about["rows"] = [asdict(row) for row in rows]
    if arguments.json:
        arguments.json.write_text(json.dumps(about, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
