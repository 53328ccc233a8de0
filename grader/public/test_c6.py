"""Coding Exercise 6: accumulated_step."""

import math
import random

import pytest
import torch
from gradescope_utils.autograder_utils.decorators import number, weight

# The same numbers are added in another order. float32 on the virtual tier, bfloat16 (8 bits) on
# the other, where every one of the micro batches' gradients is rounded. The cases are drawn such
# that no named mistake comes nearer than 0.1.
RELATIVE_ERROR = {"virtual": 1e-4, "cuda": 3e-2}
# Of what a micro batch's forward pass keeps, so much may remain when the next one's begins.
LEFT_SHARE = 0.3


@number("C6.1")
@weight(3)
@pytest.mark.parametrize("case", ["equal", "different", "ignored"])
def test_same_update_as_train_step(probe, draw, tier, case):
    """The optimizer gets the gradient that train_step gives it on the same sequences."""
    seen = _step(probe, draw, _drawn_parts(draw, case))
    right, tolerance = seen["whole"]["gradient"], RELATIVE_ERROR[tier]
    assert seen["steps"] == 1, (
        f"optimizer.step() was called {seen['steps']} times: the update of a global batch is made "
        "once, after its last micro batch"
    )
    given = seen["gradients"][-1]
    if _error(given, right) <= tolerance:
        return
    for gradient, message in _named_gradients(seen):
        assert _error(given, gradient) > tolerance, message
    pytest.fail(
        "the gradient that the optimizer got is not train_step's on the same sequences: relative "
        f"error {_error(given, right):.2g}. Every token's loss has to weigh 1/N, with N the "
        "number of trainable tokens in the global batch"
    )


@number("C6.2")
@weight(1)
def test_one_optimizer_step_and_no_gradients_before_or_after(probe, draw, tier):
    """The optimizer steps once, with nothing in .grad from before, and .grad is None afterwards."""
    seen = _step(probe, draw, _drawn_parts(draw, "different"), stale=True)
    n_parts = len(seen["n_targets"])
    assert seen["steps"] != n_parts, (
        f"optimizer.step() was called {n_parts} times, once per micro batch: gradients accumulate "
        "over all micro batches, and then the optimizer steps once"
    )
    assert seen["steps"] == 1, f"optimizer.step() was called {seen['steps']} times, not once"
    given, right, stale = seen["gradients"][0], seen["whole"]["gradient"], seen["stale"]
    assert _error(given - stale, right) > RELATIVE_ERROR[tier] * _norm(given) / _norm(right), (
        "gradients were not cleared before the step: what was in .grad when accumulated_step was "
        "called went into the update"
    )
    assert not seen["left"], (
        "gradients were not cleared after the step: .grad must be None again, as after "
        f"train_step, but {len(seen['left'])} parameters still have one ({seen['left'][0]}, for "
        "instance; zeros take as much memory: set_to_none=True)"
    )


@number("C6.3")
@weight(2)
@pytest.mark.parametrize("recompute", [False, True])
def test_one_micro_batch_at_a_time(probe, draw, recompute):
    """Each micro batch has its own pass, and its activations are gone before the next one's."""
    parts = _drawn_parts(draw, "memory")
    seen = _step(probe, draw, parts, recompute=recompute)
    passes = [p["tokens"] for p in seen["passes"]]
    assert passes != [sum(seen["n_tokens"])], (
        "all sequences went through the model in one pass: then all their activations exist "
        "together. Run the micro batches one at a time"
    )
    assert passes == seen["n_tokens"], (
        f"the model's forward passes had {passes} tokens; the micro batches have "
        f"{seen['n_tokens']}: one pass each, in order"
    )
    assert all(p["recompute"] is recompute for p in seen["passes"]), (
        f"accumulated_step was called with recompute={recompute}, but did not pass that on to the "
        "model"
    )
    # When the second pass begins and ever after, there is one gradient per weight, and no more.
    alive, room = seen["alive_bytes"], 0
    for i in range(1, len(passes)):
        left = alive[i] - alive[0] - seen["gradient_bytes"]
        room = LEFT_SHARE * min(a["kept_bytes"] for a in seen["alone"][:i])
        assert left <= room, (
            f"when micro batch {i}, counted from 0, began its forward pass, {_kib(left)} of "
            "activations of those before it were still alive: call backward() once per micro "
            "batch, right after its forward pass, and keep nothing that holds on to its graph"
        )
    whole = seen["whole"]["peak_bytes"]
    assert recompute or seen["peak_bytes"] < whole, (
        f"the step peaked at {_kib(seen['peak_bytes'])}, no less than the {_kib(whole)} that "
        "train_step needs for all sequences at once"
    )


@number("C6.4")
@weight(2)
def test_loss_ranges_and_no_waiting(probe, draw, tier):
    """It returns the global batch's mean loss, opens train_step's ranges, and never waits."""
    seen = _step(probe, draw, _drawn_parts(draw, "ignored"))
    returned, right = seen["returned"], float(seen["whole"]["loss"])
    assert isinstance(returned["value"], torch.Tensor), (
        f"accumulated_step returned a value of type {returned['type']}: return the loss as a "
        "tensor, as train_step does. Making it a Python number would wait for the GPU"
    )
    assert returned["shape"] == [], f"the loss has shape {returned['shape']}, not a single number"
    assert not returned["requires_grad"], (
        "the loss still hangs on its graph: return it detached, as train_step does"
    )
    loss, tolerance = float(returned["value"]), RELATIVE_ERROR[tier]
    if not abs(loss - right) <= tolerance * right:  # so written, NaN is wrong too
        last = float(seen["alone"][-1]["loss"])
        for wrong in (last / sum(seen["n_targets"]), last / seen["n_targets"][-1]):
            assert abs(loss - wrong) > tolerance * right, (
                f"the loss returned is that of the last micro batch alone ({loss:.4f}); the mean "
                f"over the global batch is {right:.4f}"
            )
        pytest.fail(
            f"the loss returned is {loss:.4f}; the mean over the global batch's trainable tokens "
            f"is {right:.4f}"
        )
    assert not seen["waits"], (
        f"the step waited for the GPU ({seen['waits'][0]}): nothing in it may need a number on "
        "the host. Add losses up as tensors, and use n_targets, which is a Python int"
    )
    assert seen["ranges"], "it opened no NVTX ranges: mark the same phases as train_step does"
    expected = ["forward", "backward"] * len(seen["n_targets"]) + ["optimizer"]
    assert seen["ranges"] == expected, (
        f"the NVTX ranges were {_shown(seen['ranges'])}; expected {_shown(expected)}"
    )


def _step(probe, draw: random.Random, parts, stale=False, recompute=False) -> dict:
    return probe(
        "train.accumulation",
        n_layers=2,
        parts=parts,
        seed=draw.randrange(2**31),
        stale=stale,
        recompute=recompute,
    )


def _drawn_parts(draw: random.Random, case: str) -> list[list[dict]]:
    """Micro batches: 3 or 4 of them, of sequences of some length, some tokens without a target."""
    n_parts = draw.choice([3, 4])
    if case == "equal":
        length = draw.randint(8, 24)
        n_sequences = draw.choice([1, 2])
        return [[_sequence(length)] * n_sequences for _ in range(n_parts)]
    if case == "memory":  # activations that matter beside the gradients
        length = draw.randint(40, 56)
        return [[_sequence(length + draw.randint(0, 8)) for _ in range(2)] for _ in range(n_parts)]
    # Lengths that grow, in random order: the shares of the micro batches differ a lot.
    lengths = [draw.randint(4, 6), draw.randint(12, 18), draw.randint(30, 40), draw.randint(7, 9)]
    parts = [[_sequence(n)] for n in lengths[:n_parts]]
    parts[2].append(_sequence(draw.randint(10, 20)))
    if case == "ignored":
        for part in parts:
            for sequence in part:
                n = sequence["length"]
                sequence["ignored"] = draw.randint(n // 3, n // 2)
        long = parts[1][0]
        long["ignored"] = long["length"] - 2  # a long prompt with a short answer
    draw.shuffle(parts)
    return parts


def _sequence(length: int) -> dict:
    return {"length": length, "ignored": 0}


def _named_gradients(seen) -> list[tuple[torch.Tensor, str]]:
    """What the optimizer would get from each mistake, and what to say about it."""
    sums, counts = [a["gradient"] for a in seen["alone"]], seen["n_targets"]
    total, n = sum(sums), sum(counts)
    means = sum(g / c for g, c in zip(sums, counts, strict=True))
    mean_of_each = (
        "each micro batch's loss was divided by its own number of trainable tokens, so that a "
        "token in a small micro batch weighs more: divide by the number in the global batch, the "
        "sum of n_targets"
    )
    last = (
        "the update has the gradient of the last micro batch alone: gradients must add up in "
        ".grad, so clear them before the first micro batch and not between them"
    )
    tokens = sum(seen["n_tokens"])
    averaged = "the gradient is divided by the number of micro batches once too often"
    return [
        (means, mean_of_each),
        (means / len(sums), mean_of_each),
        (sums[-1] / n, last),
        (sums[-1] / counts[-1], last),
        (total / n / len(sums), averaged),
        (
            total,
            "the losses were added up but never divided: divide by the number of trainable tokens "
            "in the global batch",
        ),
        (
            total / tokens,
            f"the losses were divided by {tokens}, the number of tokens; only {n} of them have a "
            "target. n_targets counts those",
        ),
        (
            sums[0] / n,
            "the update has the gradient of the first micro batch alone: run all of them before "
            "the optimizer steps",
        ),
    ]


def _error(tensor, right: torch.Tensor) -> float:
    """Norm of the difference over the norm of `right`; infinite where they cannot be compared."""
    if not isinstance(tensor, torch.Tensor) or tensor.shape != right.shape:
        return float("inf")
    error = _norm(tensor.double() - right.double()) / max(_norm(right), 1e-30)
    return error if math.isfinite(error) else float("inf")


def _norm(tensor: torch.Tensor) -> float:
    return float(tensor.double().norm())


def _kib(n: float) -> str:
    return f"{n / 1024:.0f} KiB"


def _shown(ranges: list[str]) -> str:
    return ", ".join(ranges) if ranges else "none"
