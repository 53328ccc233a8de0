"""Checkpoints: whatever is wrong with one is said, and no weight is ever left random."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from olmoe.load import INDEX, MOST_LINES, SINGLE, CheckpointError, load, save
from olmoe.model import Olmoe

from .samples import examples, sample_config, sample_model

CFG = sample_config()


@pytest.fixture
def folder(tmp_path) -> Path:
    """A checkpoint in one file."""
    save(sample_model(CFG), tmp_path)
    return tmp_path


def rewrite(folder: Path, change) -> None:
    """`change` gets the dict of the checkpoint's tensors, to change in place."""
    tensors = load_file(folder / SINGLE)
    change(tensors)
    save_file(tensors, folder / SINGLE)


def reconfigure(folder: Path, **changes) -> None:
    config = json.loads((folder / "config.json").read_text())
    config = {k: v for k, v in (config | changes).items() if v is not ...}
    (folder / "config.json").write_text(json.dumps(config))


def check_equal(a: Olmoe, b: Olmoe):
    assert a.cfg == b.cfg
    for (name, p), q in zip(a.named_parameters(), b.parameters(), strict=True):
        assert p.dtype == q.dtype and torch.equal(p, q), name


def message(folder: Path, **arguments) -> str:
    with pytest.raises(CheckpointError) as caught:
        load(folder, **arguments)
    return str(caught.value)


@examples(12)
@given(
    limit=st.integers(1, 300_000),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    seed=st.integers(0, 9),
)
def test_what_was_saved_is_loaded(tmp_path_factory, limit, dtype, seed):
    folder = tmp_path_factory.mktemp("checkpoint")
    model = sample_model(CFG, dtype=dtype, seed=seed)
    save(model, folder, max_shard_bytes=limit)
    check_equal(load(folder, dtype=dtype), model)
    for shard in folder.glob("*.safetensors"):
        sizes = [t.nbytes for t in load_file(shard).values()]
        assert sum(sizes) <= limit or len(sizes) == 1


def test_a_limit_beyond_the_model_gives_one_file(folder):
    assert sorted(f.name for f in folder.iterdir()) == ["config.json", SINGLE]


def test_saving_replaces_what_was_there(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    save(sample_model(CFG, seed=1), tmp_path, max_shard_bytes=9000)
    assert (tmp_path / INDEX).exists() and not (tmp_path / SINGLE).exists()
    for limit in (30_000, 2**30, 30_000):
        model = sample_model(CFG, seed=limit)
        save(model, tmp_path, max_shard_bytes=limit)
        check_equal(load(tmp_path, dtype=torch.float32), model)
        counts = {re.sub(r".*-of-", "", f.name) for f in tmp_path.glob("model-*.safetensors")}
        assert len(counts) == (limit != 2**30), "files of an earlier checkpoint were left"
    assert (tmp_path / "tokenizer.json").exists()


def test_stacked_experts_load_like_separate_ones(folder):
    expected = load(folder, dtype=torch.float32)

    def stack(tensors):
        for n in range(CFG.n_layers):
            prefix = f"model.layers.{n}.mlp.experts"
            parts = {
                part: torch.stack(
                    [tensors.pop(f"{prefix}.{e}.{part}_proj.weight") for e in range(CFG.n_experts)]
                )
                for part in ("gate", "up", "down")
            }
            tensors[f"{prefix}.gate_up_proj"] = torch.cat((parts["gate"], parts["up"]), dim=1)
            tensors[f"{prefix}.down_proj"] = parts["down"]

    rewrite(folder, stack)
    check_equal(load(folder, dtype=torch.float32), expected)


def test_other_dtypes_are_converted(folder):
    expected = load(folder, dtype=torch.float32)
    check_equal(load(folder, dtype=torch.bfloat16), expected.to(torch.bfloat16))


def test_the_first_layers_alone(folder):
    whole, first = load(folder, dtype=torch.float32), load(folder, dtype=torch.float32, n_layers=1)
    assert first.cfg == CFG.with_layers(1)
    weights = dict(whole.named_parameters())
    assert all(torch.equal(p, weights[name]) for name, p in first.named_parameters())
    with pytest.raises(ValueError, match=r"n_layers=3, but .* has 2 layers"):
        load(folder, n_layers=3)
    with pytest.raises(ValueError, match="n_layers=0"):
        load(folder, n_layers=0)


def test_moe_impl_is_passed_on(folder):
    assert load(folder, moe_impl="naive").layers[0].moe.moe_impl == "naive"


@examples(25)
@given(data=st.data())
def test_every_fault_of_the_tensors_is_named(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("checkpoint")
    save(sample_model(CFG), folder)
    names = sorted(load_file(folder / SINGLE))
    few = st.lists(st.sampled_from(names), max_size=3, unique=True)
    missing = data.draw(few)
    misshapen = [n for n in data.draw(few) if n not in missing]
    surplus = [f"{n}_scale" for n in data.draw(few)]

    def spoil(tensors):
        for name in missing:
            del tensors[name]
        for name in misshapen:
            tensors[name] = tensors[name].flatten()[:-1].clone()
        for name in surplus:
            tensors[name] = torch.zeros(1)

    rewrite(folder, spoil)
    if not missing + misshapen + surplus:
        load(folder)
        return
    said = message(folder)
    for kind, faults in (
        ("missing", missing),
        ("not part of this model", surplus),
        ("of the wrong shape", misshapen),
    ):
        assert (f"{len(faults)} {kind}" in said) == bool(faults)
        assert all(name in said for name in faults)


def test_long_lists_of_faults_are_cut(folder):
    rewrite(folder, lambda t: [t.pop(n) for n in list(t) if "experts" in n])
    said = message(folder)
    faults = 3 * CFG.n_layers * CFG.n_experts
    assert f"{faults} missing" in said and f"and {faults - MOST_LINES} more" in said
    assert said.count("\n") < 15


def test_half_stacked_experts_are_a_fault(folder):
    rewrite(folder, lambda t: t.update({"model.layers.0.mlp.experts.down_proj": torch.zeros(1)}))
    said = message(folder)
    assert "model.layers.0.mlp.experts.gate_up_proj" in said
    assert "not part of this model" in said


def test_tensors_that_are_no_weights_are_a_fault(folder):
    rewrite(folder, lambda t: t.update({"model.norm.weight": torch.ones(32, dtype=torch.int64)}))
    assert "model.norm.weight: I64" in message(folder)


def test_missing_files_are_named(tmp_path):
    assert "no config.json" in message(tmp_path / "nowhere")
    save(sample_model(CFG), tmp_path, max_shard_bytes=60_000)
    gone = sorted(tmp_path.glob("model-*"))[1]
    gone.unlink()
    assert "lacks 1 of the" in message(tmp_path) and gone.name in message(tmp_path)
    (tmp_path / INDEX).unlink()
    assert "neither" in message(tmp_path)


@pytest.mark.parametrize("kept", [0, 5, 0.3, 0.99])
def test_truncated_files_are_named(folder, kept):
    content = (folder / SINGLE).read_bytes()
    (folder / SINGLE).write_bytes(content[: int(kept * len(content)) if kept < 1 else kept])
    said = message(folder)
    assert SINGLE in said and "damaged or cut short" in said


@pytest.mark.parametrize("index", ["{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": []}'])
def test_a_broken_index_is_named(folder, index):
    (folder / INDEX).write_text(index)
    assert INDEX in message(folder)


def test_a_tensor_in_two_files_is_a_fault(tmp_path):
    save(sample_model(CFG), tmp_path, max_shard_bytes=60_000)
    first, second = sorted(tmp_path.glob("model-*"))[:2]
    twice = "model.embed_tokens.weight"
    save_file(load_file(second) | {twice: load_file(first)[twice]}, second)
    assert f"{twice} is in two files" in message(tmp_path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hidden_size": ...}, "lacks hidden_size"),
        ({"hidden_size": "32"}, "hidden_size='32'"),
        ({"num_hidden_layers": True}, "num_hidden_layers=True"),
        ({"hidden_size": 34}, "even width"),
        ({"norm_topk_prob": True}, "norm_topk_prob is True, not False"),
        ({"clip_qkv": 8.0}, "clip_qkv is 8.0"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"model_type": "mixtral"}, "model_type is 'mixtral'"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
        ({"num_key_value_heads": 1}, "num_key_value_heads is 1, not 2"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type is 'yarn'"),
        ({"rope_theta": "much"}, "config.json"),
    ],
)
def test_a_config_of_another_model_is_refused(folder, changes, says):
    reconfigure(folder, **changes)
    assert says in message(folder)


def test_a_config_that_is_no_json_is_refused(folder):
    (folder / "config.json").write_text("n_layers: 2")
    assert "config.json cannot be read as JSON" in message(folder)
    (folder / "config.json").write_text("[]")
    assert "not a JSON object" in message(folder)


def test_both_spellings_of_rope_theta_are_read(folder):
    reconfigure(folder, rope_theta=5e5)
    assert load(folder).cfg.rope_theta == 5e5
    reconfigure(folder, rope_theta=..., rope_parameters={"rope_type": "default", "rope_theta": 7e4})
    assert load(folder).cfg.rope_theta == 7e4


def test_more_layers_in_the_files_than_in_the_config_is_a_fault(folder):
    reconfigure(folder, num_hidden_layers=1)
    assert "model.layers.1." in message(folder) and "not part of this model" in message(folder)
