"""Setup: what the model, its data and its checkpoints do. No exercise is judged by these."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from olmoe.data import pack


def recorded_pass(
    lab, *, files: dict, moe_impl: str, sequences: list[list[int]], recompute: bool = False
) -> dict:
    """One forward and backward pass in float32 over one micro batch of all `sequences`.

    files: the checkpoint, each file's bytes as a uint8 tensor.
    Returns "logits" [T, V], "loss", and "gradients" by the names of the checkpoint's tensors;
    a gradient that did not arrive is reported as NaN.
    """
    loading = lab.load("olmoe.load")
    with tempfile.TemporaryDirectory() as folder:
        model = loading.load(_written(files, folder), lab.device, torch.float32, moe_impl=moe_impl)
    micro_batch = pack(sequences, lab.device)
    logits = model(micro_batch.tokens, micro_batch.seqs, recompute=recompute)
    loss = F.cross_entropy(logits, micro_batch.targets)
    loss.backward()
    # Saved as if they were weights, gradients get the names of the checkpoint's tensors.
    for weight in model.parameters():
        weight.data = weight.grad if weight.grad is not None else torch.full_like(weight, torch.nan)
    with tempfile.TemporaryDirectory() as folder:
        loading.save(model, folder)
        gradients = load_file(Path(folder) / "model.safetensors")
    return {"logits": logits, "loss": loss, "gradients": gradients}


def separate_logits(lab, *, files: dict, sequences: list[list[int]]) -> dict:
    """Logits in float32 of all sequences in one micro batch, and of each in its own, [T, V]."""
    with tempfile.TemporaryDirectory() as folder:
        model = lab.load("olmoe.load").load(_written(files, folder), lab.device, torch.float32)
    with torch.no_grad():
        together, *alone = (
            model(m.tokens, m.seqs)
            for m in (pack(s, lab.device) for s in (sequences, *([one] for one in sequences)))
        )
    return {"together": together, "alone": torch.cat(alone)}


def saved_again(lab, *, files: dict, max_shard_bytes: int) -> dict:
    """Loads a checkpoint, saves it in shards, loads those and saves in one file: its tensors."""
    loading = lab.load("olmoe.load")
    with tempfile.TemporaryDirectory() as folder:
        sharded, single = Path(folder) / "sharded", Path(folder) / "single"
        model = loading.load(_written(files, folder), lab.device, torch.float32)
        loading.save(model, sharded, max_shard_bytes)
        shards = len(list(sharded.glob("*.safetensors")))
        loading.save(loading.load(sharded, lab.device, torch.float32), single)
        return {"shards": shards, "tensors": load_file(single / "model.safetensors")}


def packed(lab, *, sequences: list[list[int]]) -> dict:
    """What `pack` makes of these sequences."""
    micro_batch = lab.load("olmoe.data").pack(sequences, lab.device)
    return {
        "tokens": micro_batch.tokens,
        "targets": micro_batch.targets,
        "n_targets": micro_batch.n_targets,
        "cu_seqlens": micro_batch.seqs.cu_seqlens,
        "max_seqlen": micro_batch.seqs.max_seqlen,
        "positions": micro_batch.seqs.positions,
    }


def pretrained_logits(lab, *, path: str, sequences: list[list[int]]) -> torch.Tensor:
    """Logits [T, V] in bf16 of the checkpoint at `path`, all layers, all sequences at once."""
    model = lab.load("olmoe.load").load(path, lab.device, torch.bfloat16)
    micro_batch = pack(sequences, lab.device)
    with torch.no_grad():
        return model(micro_batch.tokens, micro_batch.seqs)


def _written(files: dict, folder: str) -> Path:
    for name, content in files.items():
        (Path(folder) / name).write_bytes(content.numpy().tobytes())
    return Path(folder)
