"""Writes grader/public/setup_recording: what transformers computes, for the Setup tests.

    PYTHONPATH=staff:student:. python -m grader.tests.model.make_recording

Students need no transformers to run the Setup tests: this small model is its stand-in. The files:

    config.json, model.safetensors   a checkpoint, as transformers saves it
    gradients.safetensors            of the loss, by the names of the checkpoint's tensors
    passes.safetensors               token ids, lengths, and the logits and loss of one pass
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from olmoe.config import OlmoeConfig
from olmoe.data import MicroBatch, pack

RECORDING = Path(__file__).parents[2] / "public" / "setup_recording"
CFG = OlmoeConfig(
    n_layers=2,
    d_model=32,
    n_heads=2,
    d_expert=24,
    n_experts=8,
    experts_per_token=3,
    vocab_size=80,
)
LENGTHS = (7, 1, 19, 4, 12)


def reference(cfg: OlmoeConfig, seed: int):
    """transformers' model of these sizes, with weights that make every part of it matter."""
    from transformers import OlmoeConfig as ReferenceConfig
    from transformers import OlmoeForCausalLM

    model = OlmoeForCausalLM(
        ReferenceConfig(
            num_hidden_layers=cfg.n_layers,
            hidden_size=cfg.d_model,
            num_attention_heads=cfg.n_heads,
            num_key_value_heads=cfg.n_heads,
            intermediate_size=cfg.d_expert,  # its default doubles the experts
            num_experts=cfg.n_experts,
            num_experts_per_tok=cfg.experts_per_token,
            vocab_size=cfg.vocab_size,
            rope_parameters={"rope_type": "default", "rope_theta": cfg.rope_theta},
            rms_norm_eps=cfg.norm_eps,
            pad_token_id=None,
            eos_token_id=None,
        )
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            # Unequal norm weights, and matrices large enough that layers and routing matter.
            mean, std = (1.0, 0.3) if weight.ndim == 1 else (0.0, weight.shape[-1] ** -0.5)
            weight.normal_(mean, std, generator=generator)
    return model


def reference_logits(model, micro_batch: MicroBatch) -> torch.Tensor:
    """[T, V]. Positions that start again at 0 tell transformers where a sequence starts."""
    positions = micro_batch.seqs.positions[None].long()
    tokens = micro_batch.tokens[None]
    # With a cache, transformers would not look at the positions for that.
    return model(tokens, position_ids=positions, use_cache=False).logits[0]


def write_recording(folder: Path) -> None:
    model = reference(CFG, seed=568)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()

    generator = torch.Generator().manual_seed(568)
    sequences = [torch.randint(CFG.vocab_size, (n + 1,), generator=generator) for n in LENGTHS]
    micro_batch = pack(sequences)
    logits = reference_logits(model, micro_batch)
    loss = F.cross_entropy(logits, micro_batch.targets)
    loss.backward()
    passes = {
        "ids": torch.cat(sequences),
        "lengths": torch.tensor(LENGTHS),
        "logits": logits.detach().clone(),
        "loss": loss.detach(),
    }
    save_file(passes, folder / "passes.safetensors")

    # Saving gradients as if they were weights gives them the names of the checkpoint's tensors.
    for weight in model.parameters():
        weight.data = weight.grad
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch)
        gradients = (Path(scratch) / "model.safetensors").read_bytes()
    (folder / "gradients.safetensors").write_bytes(gradients)


if __name__ == "__main__":
    RECORDING.mkdir(exist_ok=True)
    write_recording(RECORDING)
    total = sum(file.stat().st_size for file in RECORDING.iterdir())
    print(f"wrote {RECORDING}: {total / 1000:.0f} kB")
