"""Coding Exercise 5: the recomputation branch of Olmoe.forward."""

import math
import re

import torch
from gradescope_utils.autograder_utils.decorators import number, weight

# A recomputation runs the very same operations on the very same numbers. What is allowed for is
# rounding where a GPU adds in another order (bfloat16 has 8 bits); in float32 there is none.
RELATIVE_ERROR = {"virtual": 1e-5, "cuda": 2e-2}
# Every layer's input and the head's activations have to be kept; a tenth more is not a layer.
KEPT_RATIO = 1.1


@number("C5.1")
@weight(5)
def test_gradients_are_the_same(probe, draw, tier):
    """The logits and every gradient are the same with and without recomputation."""
    passes = _passes(probe, draw)
    plain, recomputed = passes["plain"], passes["recomputed"]
    tolerance = RELATIVE_ERROR[tier]
    layers = _layers(passes)

    never = [name for name in layers if f"forward {name}" not in recomputed["log"]]
    assert not never, (
        f"with recompute=True {_list(never)} never ran in the forward pass: every layer has to"
    )
    assert _error(recomputed["logits"], plain["logits"]) <= tolerance, (
        "the logits with recompute=True are not those without: each layer must get the output of "
        "the one before, and the output of checkpoint(...) must be used"
    )
    missing = [
        name
        for name, gradient in plain["gradients"].items()
        if _is_something(gradient) and not _is_something(recomputed["gradients"].get(name))
    ]
    assert not missing, (
        f"with recompute=True no gradient reaches {_list(_stages_of(missing))}: something cuts the "
        "graph in front of a layer, a detach() or no_grad() perhaps. The input of a checkpointed "
        "layer must be the output of the one before as it is"
    )
    again = [entry for entry in recomputed["log"] if entry.startswith("recompute layers.")]
    assert not (len(again) == len(layers) > len(set(again)) == 1), (
        f"all recomputations ran {again[0].split()[1]}: a lambda or nested function looks a loop "
        "variable up when it is called, which is in the backward pass, after the loop. Give "
        "checkpoint the layer itself and its arguments, or bind the variable"
    )
    wrong = [
        name
        for name, gradient in plain["gradients"].items()
        if _is_something(gradient) and _error(recomputed["gradients"][name], gradient) > tolerance
    ]
    assert not wrong, (
        "the gradients with recompute=True are not those without, for instance of "
        f"{wrong[0]}: relative error "
        f"{_error(recomputed['gradients'][wrong[0]], plain['gradients'][wrong[0]]):.2g}"
    )


@number("C5.2")
@weight(3)
def test_each_layer_runs_again_once_and_nothing_else_does(probe, draw):
    """In the backward pass each layer's forward runs once more, when its turn comes; no other's."""
    passes = _passes(probe, draw)
    layers = _layers(passes)
    plain = _again(passes["plain"]["log"])
    assert not plain, (
        f"{_list(sorted(set(plain)))} ran again in the backward pass with recompute=False: "
        "recompute only when asked to"
    )
    log = passes["recomputed"]["log"]
    again = _again(log)
    assert not _all_at_once(log, layers), (
        "several layers were recomputed at once, before the backward pass of the last of them: "
        "they are inside a single checkpoint. Then all their activations exist together. Each "
        "layer needs a checkpoint of its own"
    )
    others = [name for name in again if name not in layers]
    assert not others, (
        f"{_list(sorted(set(others)))} ran again in the backward pass: only the layers are to be "
        "recomputed, not the embedding or the head"
    )
    twice = sorted({name for name in again if again.count(name) > 1})
    assert not twice, f"{_list(twice)} ran again more than once: once per layer is enough"
    kept = [name for name in layers if name not in again]
    unreached = [name for name in kept if f"gradient {name}" not in log]
    assert not unreached, f"the backward pass did not get to {_list(unreached)} at all"
    assert len(kept) < len(layers), (
        "nothing was recomputed: no layer ran again in the backward pass with recompute=True"
    )
    assert not kept, (
        f"{_list(kept)} did not run again in the backward pass: with recompute=True every layer "
        "has to be checkpointed"
    )
    unhooked = [n for n in layers if f"recompute {n}" not in passes["recomputed"]["hooked"]]
    assert not unhooked, (
        f"the recomputation of {_list(unhooked)} did not call its hooks, so annotate and "
        "stage_times would not see it: give checkpoint the layer, not layer.forward"
    )


@number("C5.3")
@weight(3)
def test_far_fewer_activations_are_kept(probe, draw):
    """After the forward pass little more than each layer's input is left allocated."""
    passes = _passes(probe, draw)
    plain, recomputed = passes["plain"]["kept_bytes"], passes["recomputed"]["kept_bytes"]
    right = passes["reference"]
    kept = [n for n in _layers(passes) if n not in _again(passes["recomputed"]["log"])]
    why = f", because {_list(kept)} kept theirs" if kept else ", although every layer ran again"
    assert recomputed <= KEPT_RATIO * right["kept_bytes"], (
        f"the forward pass with recompute=True left {_kib(recomputed)} of activations allocated "
        f"({_kib(plain)} without){why}. About {_kib(right['kept_bytes'])} is enough, for the "
        "input of each layer and for the head"
    )
    peak = passes["recomputed"]["peak_bytes"]
    assert peak <= KEPT_RATIO * right["peak_bytes"], (
        f"the backward pass with recompute=True peaked at {_kib(peak)}; about "
        f"{_kib(right['peak_bytes'])} is enough when the activations of only one layer exist at a "
        "time"
    )


@number("C5.4")
@weight(1)
def test_checkpoint_is_not_reentrant(probe, draw):
    """checkpoint is called with use_reentrant=False."""
    passes = _passes(probe, draw)
    nodes = passes["recomputed"]["nodes"]
    assert not any(re.match(r"CheckpointFunction", node) for node in nodes), (
        "the checkpoint is reentrant, PyTorch's old implementation, which runs a second backward "
        "pass inside the first: pass use_reentrant=False"
    )
    assert _again(passes["recomputed"]["log"]), (
        "no layer ran again in the backward pass, so there is no checkpoint to judge"
    )


def _passes(probe, draw) -> dict:
    """What the model did without and with recomputation; the shapes are drawn."""
    seen = probe(
        "recompute.recomputed_passes",
        n_layers=draw.choice([3, 4]),
        lengths=[draw.randint(5, 40) for _ in range(3)],
        seed=draw.randrange(2**31),
    )
    for kind in ("plain", "recomputed"):
        assert isinstance(seen[kind]["logits"], torch.Tensor), (
            f"Olmoe.forward returned {_named(seen[kind]['logits'])}, not a tensor of logits"
        )
    return seen


def _layers(passes) -> list[str]:
    return [name for name in passes["stages"] if name.startswith("layers.")]


def _again(log: list[str]) -> list[str]:
    """Names of what ran again in the backward pass, in order."""
    return [entry.split()[1] for entry in log if entry.startswith("recompute ")]


def _all_at_once(log: list[str], layers: list[str]) -> bool:
    """Whether a layer was recomputed before the gradient of its output was known."""
    for earlier in layers[:-1]:
        again, known = f"recompute {earlier}", f"gradient {earlier}"
        if again in log and known in log and log.index(again) < log.index(known):
            return True
    return False


def _is_something(gradient) -> bool:
    return isinstance(gradient, torch.Tensor) and bool(gradient.any())


def _error(tensor, right: torch.Tensor) -> float:
    """Norm of the difference over the norm of `right`; infinite where they cannot be compared."""
    if not isinstance(tensor, torch.Tensor) or tensor.shape != right.shape:
        return float("inf")
    tensor, right = tensor.double(), right.double()
    error = float((tensor - right).norm() / right.norm().clamp(min=1e-30))
    return error if math.isfinite(error) else float("inf")


def _stages_of(parameters: list[str]) -> list[str]:
    """embed, layers.0, layers.1: the stages that these parameters belong to."""
    names = [re.match(r"layers\.\d+|\w+", p)[0] for p in parameters]
    return list(dict.fromkeys(names))


def _list(names: list[str]) -> str:
    return ", ".join(names)


def _kib(n: float) -> str:
    return f"{n / 1024:.0f} KiB"


def _named(value) -> str:
    return f"an object of type {type(value).__name__}"
