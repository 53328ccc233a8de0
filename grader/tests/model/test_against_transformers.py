"""The model against Hugging Face's implementation of the same, live."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from olmoe.load import load, save

from .make_recording import RECORDING, reference, reference_logits, write_recording
from .samples import configs, difference, examples, lengths, sample_config, sample_micro_batch

transformers = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def quiet():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


@examples(10)
@given(
    cfg=configs,
    lengths=lengths,
    seed=st.integers(0, 99),
    moe_impl=st.sampled_from(["grouped", "naive"]),
)
def test_logits_and_gradients_in_float32(tmp_path_factory, cfg, lengths, seed, moe_impl):
    folder = tmp_path_factory.mktemp("checkpoint")
    theirs = reference(cfg, seed)
    theirs.save_pretrained(folder)
    ours = load(folder, dtype=torch.float32, moe_impl=moe_impl)
    assert ours.cfg == cfg
    micro_batch = sample_micro_batch(cfg, lengths, seed)

    logits = ours(micro_batch.tokens, micro_batch.seqs)
    expected = reference_logits(theirs, micro_batch)
    assert difference(logits, expected) < 1e-5
    F.cross_entropy(logits, micro_batch.targets).backward()
    F.cross_entropy(expected, micro_batch.targets).backward()
    # As checkpoints, gradients have the same names in both.
    for model in (ours, theirs):
        for weight in model.parameters():
            weight.data = weight.grad
    theirs.save_pretrained(folder / "theirs")
    save(ours, folder / "ours")
    gradients, wanted = (load_file(folder / w / "model.safetensors") for w in ("ours", "theirs"))
    assert gradients.keys() == wanted.keys()
    for name, gradient in gradients.items():
        # In sequences of one token, queries and keys have gradients of 0 and rounding.
        assert difference(gradient, wanted[name], least_norm=0.1) < 1e-5, name


def test_a_long_sequence(tmp_path):
    """Rotary angles grow with the position, and so does whatever is wrong with them."""
    cfg = sample_config(n_layers=1)
    theirs = reference(cfg, seed=3)
    theirs.save_pretrained(tmp_path)
    micro_batch = sample_micro_batch(cfg, [2500, 1000])
    ours = load(tmp_path, dtype=torch.float32)
    with torch.no_grad():
        logits = ours(micro_batch.tokens, micro_batch.seqs)
        assert difference(logits, reference_logits(theirs, micro_batch)) < 1e-5


def test_bf16_is_as_accurate_as_theirs(tmp_path):
    cfg = sample_config(n_layers=1, d_model=64, experts_per_token=8)  # no rounding reroutes a token
    reference(cfg, seed=0).to(torch.bfloat16).save_pretrained(tmp_path)
    micro_batch = sample_micro_batch(cfg, [40, 3, 21])
    exact = load(tmp_path, dtype=torch.float32)(micro_batch.tokens, micro_batch.seqs)
    ours = load(tmp_path, dtype=torch.bfloat16)(micro_batch.tokens, micro_batch.seqs)
    theirs = reference_logits(
        transformers.OlmoeForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16), micro_batch
    )
    assert difference(ours, exact) < 1.1 * difference(theirs, exact) < 0.02


@pytest.mark.parametrize("limit", [2**30, 20_000])
def test_transformers_loads_what_we_save(tmp_path, limit):
    cfg = sample_config(rope_theta=5e5)
    reference(cfg, seed=1).save_pretrained(tmp_path / "theirs")
    save(load(tmp_path / "theirs", dtype=torch.float32), tmp_path / "ours", max_shard_bytes=limit)
    again, information = transformers.OlmoeForCausalLM.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(information[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    for (name, p), q in zip(
        again.named_parameters(), reference(cfg, seed=1).parameters(), strict=True
    ):
        assert p.dtype == q.dtype and torch.equal(p, q), name
    micro_batch = sample_micro_batch(cfg, [5, 9])
    ours = load(tmp_path / "ours", dtype=torch.float32)(micro_batch.tokens, micro_batch.seqs)
    assert difference(ours, reference_logits(again, micro_batch)) < 1e-5


def test_the_setup_recording_is_not_stale(tmp_path):
    """grader/public/setup_recording is what its script writes today."""
    write_recording(tmp_path)
    assert {f.name for f in tmp_path.iterdir()} == {f.name for f in RECORDING.iterdir()}
    for file in RECORDING.glob("*.safetensors"):
        recorded, now = load_file(file), load_file(tmp_path / file.name)
        assert recorded.keys() == now.keys()
        for name, tensor in recorded.items():
            assert difference(tensor, now[name]) < 1e-6, (file.name, name)
    assert sum(f.stat().st_size for f in RECORDING.iterdir()) < 700_000
