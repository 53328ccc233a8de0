"""Load and save checkpoints in Hugging Face's format: config.json beside .safetensors files.

The files name each expert's three matrices; the model stacks them, and stacks q, k and v. Both are
described once, by `pieces`, which loading and saving share. Files in which the experts of a
layer are already stacked (`experts.gate_up_proj`, `experts.down_proj`) load too.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from olmoe.config import OlmoeConfig
from olmoe.model import Olmoe

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
FLOAT_DTYPES = {"F64", "F32", "F16", "BF16"}
MOST_LINES = 8  # of each kind of fault in one message


class CheckpointError(ValueError):
    """A checkpoint that cannot be loaded: says what is wrong, and in which file."""


def load(path, device="cpu", dtype=torch.bfloat16, n_layers=None, moe_impl="grouped") -> Olmoe:
    """The model of the checkpoint in the folder `path`, with every weight from its files.

    `n_layers` takes the first layers only; the files of the others are not read. Tensors are
    converted to `dtype` if they have another one. Nothing is allocated twice: each tensor is
    mapped from its file and copied to its place on `device`.

    Raises CheckpointError if a file is missing or damaged, if config.json describes a model that
    this code does not compute, or if a tensor is missing, surplus or of the wrong shape; in the
    last case the message lists all of them.
    """
    path = Path(path)
    cfg = _read_config(path)
    n_layers = cfg.n_layers if n_layers is None else n_layers
    if not 1 <= n_layers <= cfg.n_layers:
        raise ValueError(f"n_layers={n_layers}, but {path} has {cfg.n_layers} layers")
    files = _open_shards(path)
    with torch.device("meta"):
        model = Olmoe(cfg.with_layers(n_layers), moe_impl, dtype=dtype)
    matched = _match(model, cfg.n_layers, files, path)
    model.to_empty(device=device)
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for piece in matched:
            target = parameters[piece.parameter][piece.index]
            target.copy_(files[piece.name].get_tensor(piece.name))
    return model


def save(model: Olmoe, path, max_shard_bytes: int = 5 * 2**30) -> None:
    """Write `model` to the folder `path`, in the dtype it has.

    No file is larger than `max_shard_bytes`, unless a single tensor is. Any checkpoint already in
    the folder is replaced; its index, or the only file, is written last, so that a folder in which
    writing was interrupted does not load.
    """
    if max_shard_bytes < 1:
        raise ValueError(f"max_shard_bytes={max_shard_bytes} must be at least 1")
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    for old in [path / INDEX, *path.glob("model*.safetensors")]:
        old.unlink(missing_ok=True)
    (path / "config.json").write_text(json.dumps(_config_json(model), indent=2) + "\n")

    parameters = dict(model.named_parameters())
    tensors = [(p.name, parameters[p.parameter].detach()[p.index]) for p in pieces(model)]
    shards = _split([t.nbytes for _, t in tensors], max_shard_bytes)
    weight_map = {}
    for number, shard in enumerate(shards, start=1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        _write(path / (SINGLE if len(shards) == 1 else file), tensors[shard])
        weight_map |= {name: file for name, _ in tensors[shard]}
    if len(shards) > 1:
        total = sum(t.nbytes for _, t in tensors)
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (path / INDEX).write_text(json.dumps(index, indent=2) + "\n")


# ---- Which tensor of the files goes where in the model


class Piece(NamedTuple):
    """One tensor of the files: `parameters[parameter][index]`."""

    name: str
    parameter: str
    index: tuple = ()  # () is the whole parameter


def pieces(model: Olmoe, stacked: frozenset[int] = frozenset()) -> Iterator[Piece]:
    """Every tensor in the files of `model`. The layers in `stacked` have their experts stacked."""
    yield Piece("model.embed_tokens.weight", "embed.weight")
    for n in range(model.cfg.n_layers):
        disk, layer = f"model.layers.{n}", f"layers.{n}"
        yield Piece(f"{disk}.input_layernorm.weight", f"{layer}.attn_norm.weight")
        for i, letter in enumerate("qkv"):
            yield Piece(f"{disk}.self_attn.{letter}_proj.weight", f"{layer}.attn.qkv", (i,))
        yield Piece(f"{disk}.self_attn.o_proj.weight", f"{layer}.attn.out")
        for i, letter in enumerate("qk"):
            yield Piece(f"{disk}.self_attn.{letter}_norm.weight", f"{layer}.attn.qk_norm", (i,))
        yield Piece(f"{disk}.post_attention_layernorm.weight", f"{layer}.moe_norm.weight")
        yield Piece(f"{disk}.mlp.gate.weight", f"{layer}.moe.router")
        gate_up, down = f"{layer}.moe.gate_up", f"{layer}.moe.down"
        if n in stacked:
            yield Piece(f"{disk}.mlp.experts.gate_up_proj", gate_up)
            yield Piece(f"{disk}.mlp.experts.down_proj", down)
            continue
        half = model.cfg.d_expert
        for e in range(model.cfg.n_experts):
            expert = f"{disk}.mlp.experts.{e}"
            yield Piece(f"{expert}.gate_proj.weight", gate_up, (e, slice(None, half)))
            yield Piece(f"{expert}.up_proj.weight", gate_up, (e, slice(half, None)))
            yield Piece(f"{expert}.down_proj.weight", down, (e,))
    yield Piece("model.norm.weight", "norm.weight")
    yield Piece("lm_head.weight", "lm_head.weight")


def _match(model: Olmoe, layers_on_disk: int, files: dict, path: Path) -> list[Piece]:
    """The pieces of `model`, after checking that `files` hold each, and nothing that is unknown."""
    layers = range(model.cfg.n_layers)
    left_out = tuple(f"model.layers.{n}." for n in range(model.cfg.n_layers, layers_on_disk))
    present = {name for name in files if not name.startswith(left_out)}
    stacked = frozenset(
        n
        for n in layers
        if not present.isdisjoint(
            f"model.layers.{n}.mlp.experts.{part}_proj" for part in ("gate_up", "down")
        )
    )
    wanted = list(pieces(model, stacked))
    faults = {
        "missing": sorted({p.name for p in wanted} - present),
        "not part of this model": sorted(present - {p.name for p in wanted}),
        "of the wrong shape or type": [],
    }
    parameters = dict(model.named_parameters())
    for piece in wanted:
        if piece.name in present:
            view = files[piece.name].get_slice(piece.name)
            shape = tuple(view.get_shape())
            target = tuple(parameters[piece.parameter][piece.index].shape)
            if shape != target:
                faults["of the wrong shape or type"].append(f"{piece.name}: {shape}, not {target}")
            elif view.get_dtype() not in FLOAT_DTYPES:
                faults["of the wrong shape or type"].append(f"{piece.name}: {view.get_dtype()}")
    if any(faults.values()):
        raise CheckpointError(_report(faults, path))
    return wanted


def _report(faults: dict[str, list[str]], path: Path) -> str:
    lines = [f"the tensors in {path} are not those of the model that its config.json describes:"]
    for kind, names in faults.items():
        if names:
            lines.append(f"{len(names)} {kind}:")
            lines += [f"    {name}" for name in names[:MOST_LINES]]
            if len(names) > MOST_LINES:
                lines.append(f"    ... and {len(names) - MOST_LINES} more")
    return "\n".join(lines)


# ---- Files


def _open_shards(path: Path) -> dict:
    """Tensor name -> the open file that holds it. Opening reads only the headers."""
    if (path / INDEX).exists():
        weight_map = _read_json(path / INDEX).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise CheckpointError(f"{path / INDEX} has no weight_map")
    elif (path / SINGLE).exists():
        weight_map = None
    else:
        raise CheckpointError(f"{path} has neither {SINGLE} nor {INDEX}: is it a checkpoint?")
    names = [SINGLE] if weight_map is None else sorted({str(f) for f in weight_map.values()})
    if missing := [name for name in names if not (path / name).is_file()]:
        raise CheckpointError(
            f"{path} lacks {len(missing)} of the {len(names)} files that {INDEX} names:"
            f" {', '.join(missing[:MOST_LINES])}"
        )
    files = {}
    for name in names:
        try:
            shard = safe_open(path / name, framework="pt")
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{path / name} is damaged or cut short ({error}): copy or download it again"
            ) from error
        in_shard = shard.keys()
        if twice := sorted(files.keys() & set(in_shard)):
            raise CheckpointError(f"{twice[0]} is in two files of {path}, one of them {name}")
        files |= dict.fromkeys(in_shard, shard)
    return files


def _write(file: Path, tensors: list[tuple[str, Tensor]]) -> None:
    # A copy, because safetensors refuses tensors that are views of one another's memory.
    copies = {name: tensor.to("cpu", copy=True).contiguous() for name, tensor in tensors}
    save_file(copies, file, metadata={"format": "pt"})


def _split(sizes: list[int], most: int) -> list[slice]:
    """Consecutive runs of `sizes`, each as long as it can be with a sum of at most `most`."""
    starts, room = [], 0
    for i, size in enumerate(sizes):
        if not starts or size > room:
            starts.append(i)
            room = most
        room -= size
    return [slice(*bounds) for bounds in zip(starts, [*starts[1:], len(sizes)], strict=True)]


def _read_json(file: Path) -> dict:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{file.parent} has no {file.name}: is it a checkpoint?") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} is not a JSON object")
    return content


# ---- config.json

SIZES = {
    "n_layers": "num_hidden_layers",
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "d_expert": "intermediate_size",
    "n_experts": "num_experts",
    "experts_per_token": "num_experts_per_tok",
    "vocab_size": "vocab_size",
}
# What the model computes. A checkpoint that says otherwise would load and be wrong.
FIXED = {
    "model_type": "olmoe",
    "hidden_act": "silu",
    "attention_bias": False,
    "clip_qkv": None,
    "norm_topk_prob": False,
    "tie_word_embeddings": False,
    "rope_scaling": None,
}


def _read_config(path: Path) -> OlmoeConfig:
    raw = _read_json(path / "config.json")
    file = path / "config.json"
    if missing := [key for key in SIZES.values() if key not in raw]:
        raise CheckpointError(f"{file} lacks {', '.join(missing)}")
    wrong = [
        f"{key} is {raw[key]!r}, not {value!r}"
        for key, value in FIXED.items()
        if key in raw and raw[key] != value
    ]
    heads = raw["num_attention_heads"]
    if raw.get("num_key_value_heads", heads) not in (heads, None):
        wrong.append(f"num_key_value_heads is {raw['num_key_value_heads']!r}, not {heads!r}")
    rope = raw.get("rope_parameters") or {}
    if rope.get("rope_type", "default") != "default":
        wrong.append(f"rope_type is {rope['rope_type']!r}, not 'default'")
    if wrong:
        raise CheckpointError(f"{file} describes a model that is not OLMoE: {'; '.join(wrong)}")
    sizes = {ours: raw[theirs] for ours, theirs in SIZES.items()}
    if bad := [f"{SIZES[k]}={v!r}" for k, v in sizes.items() if type(v) is not int]:
        raise CheckpointError(f"{file}: whole numbers are expected for {', '.join(bad)}")
    try:
        return OlmoeConfig(
            **sizes,
            rope_theta=float(rope.get("rope_theta", raw.get("rope_theta", 10000.0))),
            norm_eps=float(raw.get("rms_norm_eps", 1e-5)),
        )
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{file}: {error}") from error


def _config_json(model: Olmoe) -> dict:
    cfg = model.cfg
    return {
        "architectures": ["OlmoeForCausalLM"],
        **FIXED,
        **{theirs: getattr(cfg, ours) for ours, theirs in SIZES.items()},
        "num_key_value_heads": cfg.n_heads,
        "max_position_embeddings": 4096,
        "rms_norm_eps": cfg.norm_eps,
        "rope_theta": cfg.rope_theta,
        "torch_dtype": str(model.lm_head.weight.dtype).removeprefix("torch."),
    }
