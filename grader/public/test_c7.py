"""Coding Exercise 7: stage_times.

One place of a model is made slow by amounts drawn at random, in the forward and in the backward
pass, and the extra time has to appear in that stage, in that kind of work, and nowhere else.
"""

import math
import random
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

import pytest
import torch
from gradescope_utils.autograder_utils.decorators import number, weight

# How far a time may be from the extra that was put there. The rest of a stage, a model of a few
# thousand parameters, is launches: half a millisecond of the host's time in the virtual one, and
# several on a real host that is busy. Amounts are drawn further apart than twice this.
TOLERANCE_MS = {"virtual": 1.5, "cuda": 8.0}
# A real GPU's clock moves under load, and with it how long a calibrated kernel takes.
TOLERANCE_SHARE = {"virtual": 0.0, "cuda": 0.08}
KINDS = ("forward", "backward", "recompute")
RELATIVE_ERROR = {"virtual": 1e-4, "cuda": 1e-1}  # of an update; see test_c6
N_LAYERS = 3
LAYERS = {"first": "layers.0", "middle": "layers.1", "last": "layers.2"}
HEAD = ("norm", "lm_head", "logits")  # where the head can be slow


@dataclass(frozen=True)
class Setup:
    """One call of stage_times, and the place that is slow."""

    n_layers: int
    slow: str
    recompute: bool
    warmup: int
    steps: int
    forward_ms: list[float]  # of every step, warm-up included
    backward_ms: list[float]
    optimizer_ms: list[float] = field(default_factory=lambda: [0.0])

    @property
    def names(self) -> list[str]:
        return ["embed", *(f"layers.{i}" for i in range(self.n_layers)), "head"]

    @property
    def stage(self) -> str:
        return "head" if self.slow in HEAD else self.slow

    def extra(self, statistic=statistics.median, timed: slice | None = None) -> dict:
        """(stage, kind) -> ms, and ("optimizer", "") -> ms: what was added, over these steps."""
        timed = slice(self.warmup, None) if timed is None else timed

        def over_steps(amounts):
            amounts = amounts if len(amounts) > 1 else amounts * (self.warmup + self.steps)
            return statistic(amounts[timed])

        extra = dict.fromkeys(_cells(self.names), 0.0)
        extra[self.stage, "forward"] = over_steps(self.forward_ms)
        extra[self.stage, "backward"] = over_steps(self.backward_ms)
        if self.recompute and self.stage.startswith("layers."):
            extra[self.stage, "recompute"] = over_steps(self.forward_ms)
        extra["optimizer", ""] = over_steps(self.optimizer_ms)
        return extra

    def observed(self, probe, draw: random.Random, **more) -> dict:
        return probe(
            "train.stage_times",
            n_layers=self.n_layers,
            lengths=[draw.randint(4, 12), draw.randint(4, 12)],
            seed=draw.randrange(2**31),
            slow=self.slow,
            forward_ms=self.forward_ms,
            backward_ms=self.backward_ms,
            optimizer_ms=self.optimizer_ms,
            recompute=self.recompute,
            warmup=self.warmup,
            steps=self.steps,
            **more,
        )


def _cells(names: list[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        for kind in KINDS:
            yield name, kind
    yield "optimizer", ""


@number("C7.1")
@weight(2)
def test_names_and_units(probe, draw, tier):
    """It returns every stage in model order with three times in ms, and the optimizer's time."""
    setup = _one_slow_place(draw, "norm", recompute=draw.random() < 0.5)
    _compare(setup.observed(probe, draw), setup, tier)


@number("C7.2")
@weight(4)
@pytest.mark.parametrize("where", ["first", "last"])
def test_slow_layer(probe, draw, tier, where):
    """A layer's extra time is found in that layer, forward and backward, and nowhere else."""
    setup = _one_slow_place(draw, LAYERS[where], recompute=False)
    _compare(setup.observed(probe, draw), setup, tier)


@number("C7.3")
@weight(5)
@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_slow_layer_with_recomputation(probe, draw, tier, where):
    """With recomputation the forward's extra time is found once more, under recompute alone."""
    setup = _one_slow_place(draw, LAYERS[where], recompute=True)
    seen = setup.observed(probe, draw)
    assert all(p["recompute"] is True for p in seen["passes"]), (
        "stage_times was called with recompute=True, but did not pass that on to the model"
    )
    _compare(seen, setup, tier)


@number("C7.4")
@weight(2)
@pytest.mark.parametrize("slow", ["embed", "lm_head", "logits", "norm"])
def test_slow_embedding_and_head(probe, draw, tier, slow):
    """Extra time in the embedding, the final norm, lm_head and the loss is found where it is."""
    setup = _one_slow_place(draw, slow, recompute=draw.random() < 0.5)
    _compare(setup.observed(probe, draw), setup, tier)


@number("C7.5")
@weight(2)
def test_slow_optimizer(probe, draw, tier):
    """The optimizer's extra time is in optimizer_ms, and in no stage."""
    setup = _one_slow_place(draw, LAYERS["middle"], draw.random() < 0.5, optimizer=True)
    _compare(setup.observed(probe, draw), setup, tier)


@number("C7.6")
@weight(2)
def test_median_of_the_timed_steps(probe, draw, tier):
    """When every step takes a different time, the result is the median over the timed steps."""
    setup = _uneven_steps(draw)
    _compare(setup.observed(probe, draw), setup, tier)


@number("C7.7")
@weight(1)
def test_no_waiting_within_a_step(probe, draw):
    """Nothing waits for the GPU between the beginning of a step and its end."""
    setup = _one_slow_place(draw, LAYERS["middle"], recompute=True)
    waits = setup.observed(probe, draw)["waits"]
    assert not waits, (
        f"the host waited for the GPU within a step ({waits[0]}, {len(waits)} times in all): a "
        "synchronization between stages changes what you measure. Record events, and read them "
        "after the last step"
    )


@number("C7.8")
@weight(1)
@pytest.mark.parametrize("raises", [False, True])
def test_hooks_are_removed(probe, draw, raises):
    """No hook and no gradient is left behind; no hook is left even when a layer raises."""
    setup = _one_slow_place(draw, LAYERS["middle"], recompute=True)
    seen = setup.observed(probe, draw)
    assert not seen["hooks_left"], (
        f"stage_times left hooks behind ({_hooks(seen['hooks_left'])}): they would go on recording "
        "events in every later step. Keep what register_..._hook returns, and call its remove()"
    )
    assert not seen["left"], (
        f"stage_times left gradients behind ({seen['left'][0]}, for instance): each step has to "
        "end as train_step's does"
    )
    if raises:
        seen = setup.observed(probe, draw, raises_at=draw.randrange(setup.warmup + setup.steps))
        assert seen["raised"], (
            "a layer raised an exception, and stage_times did not let it go on to the caller"
        )
        assert not seen["hooks_left"], (
            f"when a layer raises, hooks are left behind ({_hooks(seen['hooks_left'])}): remove "
            "them in a `finally`"
        )
    assert not seen["hooks_lost"], (
        f"stage_times removed a hook that was not its own, from {seen['hooks_lost'][0]}"
    )


@number("C7.9")
@weight(1)
@pytest.mark.parametrize("recompute", [False, True])
def test_every_step_is_a_training_step(probe, draw, tier, recompute):
    """It runs warmup + steps steps, and each updates the weights as train_step does."""
    setup = _one_slow_place(draw, "embed", recompute)
    seen = setup.observed(probe, draw, compare=True)
    assert len(seen["passes"]) == seen["steps"] == setup.warmup + setup.steps, _counts(seen, setup)
    error = _relative_error(seen["update"], seen["right_update"])
    assert error <= RELATIVE_ERROR[tier], (
        "after stage_times the weights are not what the same number of train_steps makes of them "
        f"(relative error of the change: {error:.2g}): clear gradients in every step, divide the "
        "loss by n_targets, and let the optimizer step"
    )


def _one_slow_place(draw: random.Random, slow: str, recompute: bool, optimizer=False) -> Setup:
    """The same extra in every timed step. The warm-up's is larger, as a real one's is."""
    warmup, steps = draw.choice([1, 2]), draw.choice([3, 4])
    forward, backward = draw.uniform(25, 35), draw.uniform(52, 62)
    extra = draw.uniform(85, 100) if optimizer else 0.0
    return Setup(
        n_layers=N_LAYERS,
        slow=slow,
        recompute=recompute,
        warmup=warmup,
        steps=steps,
        forward_ms=[3 * forward] * warmup + [forward] * steps,
        backward_ms=[2.5 * backward] * warmup + [backward] * steps,
        optimizer_ms=[2 * extra] * warmup + [extra] * steps,
    )


def _uneven_steps(draw: random.Random) -> Setup:
    """Amounts that tell the median of the timed steps from anything else one could report."""
    warmup = 3  # an odd number more: the median over all 8 steps is a time that no step took
    low, second, middle, fourth, slowest = (draw.uniform(10, 14) + 30 * i for i in range(5))
    slowest += 300  # which moves the mean
    inner = [low, middle, slowest]
    draw.shuffle(inner)
    first, last = draw.choice([(second, fourth), (fourth, second)])
    forward = [draw.uniform(800, 820) for _ in range(warmup)] + [first, *inner, last]
    return Setup(
        n_layers=N_LAYERS,
        slow=draw.choice(list(LAYERS.values())),
        recompute=draw.random() < 0.5,
        warmup=warmup,
        steps=len(forward) - warmup,
        forward_ms=forward,
        backward_ms=[1.4 * ms for ms in forward],
    )


# What was returned, and what it says


def _times(setup: Setup, seen: dict) -> dict[tuple[str, str], float]:
    """Every time that stage_times returned, checked, by (stage, kind)."""
    returned = seen["returned"]
    assert isinstance(returned, list) and len(returned) == 2, (
        f"stage_times returned {_kind(returned)}, not the pair (stages, optimizer_ms)"
    )
    stages, optimizer_ms = returned
    assert isinstance(stages, dict), f"stages is {_kind(stages)}, not a dict"
    for name, what in (("embed", "the embedding"), ("head", "the head")):
        assert name in stages, (
            f"stages has no {name!r}: {what} is a stage too. It has {', '.join(stages) or 'none'}"
        )
    assert list(stages) == setup.names, (
        f"the stages are {', '.join(stages)}; expected {', '.join(setup.names)}, in this order"
    )
    times = {}
    for name, kinds in stages.items():
        assert isinstance(kinds, dict) and sorted(kinds) == sorted(KINDS), (
            f"stages[{name!r}] must be a dict of {', '.join(KINDS)}; it is "
            + (f"a dict of {', '.join(kinds)}" if isinstance(kinds, dict) else _kind(kinds))
        )
        for kind in KINDS:
            times[name, kind] = kinds[kind]
    times["optimizer", ""] = optimizer_ms
    for cell, ms in times.items():
        assert type(ms) in (int, float) and math.isfinite(ms), (
            f"{_cell(cell)} is {_kind(ms)}, not a number of milliseconds"
        )
    return times


def _compare(seen: dict, setup: Setup, tier: str) -> None:
    """Fails unless every time is the extra put there; names the mistake if it is a known one."""
    times, right = _times(setup, seen), setup.extra()
    if _agree(times, right, tier):
        return
    assert seen["n_events"] > 0, (
        "no CUDA event was recorded. The CPU's clock reads when work was enqueued, not how long "
        "the GPU took over it: record a torch.cuda.Event(enable_timing=True) at every boundary"
    )
    assert len(seen["passes"]) == setup.warmup + setup.steps, _counts(seen, setup)
    assert not any(
        ms < -_allowed(0, tier) for (_, kind), ms in times.items() if kind == "forward"
    ), (
        "a forward time is negative: the hooks of a recomputed layer fire again, in the middle of "
        "the backward pass, and must not be taken for the forward pass; ask in_backward()"
    )
    for wrong, message in _mistakes(setup, times, tier):
        if _tell_apart(wrong, right, tier) and _agree(times, wrong, tier):
            pytest.fail(message)
    cell = max(right, key=lambda c: abs(times[c] - right[c]) - _allowed(right[c], tier))
    pytest.fail(
        f"{_cell(cell)} is {times[cell]:.1f} ms; about {right[cell]:.1f} ms was expected, when "
        f"{setup.slow} was made slower by {right[setup.stage, 'forward']:.1f} ms forward and "
        f"{right[setup.stage, 'backward']:.1f} ms backward"
        + (" with recomputation" if setup.recompute else "")
    )


def _allowed(ms: float, tier: str) -> float:
    return TOLERANCE_MS[tier] + TOLERANCE_SHARE[tier] * abs(ms)


def _agree(times: dict, expected: dict, tier: str) -> bool:
    return all(abs(times[c] - expected[c]) <= _allowed(expected[c], tier) for c in expected)


def _tell_apart(one: dict, other: dict, tier: str) -> bool:
    """Whether no measurement can agree with both."""
    return any(
        abs(one[c] - other[c]) > _allowed(one[c], tier) + _allowed(other[c], tier) for c in one
    )


def _mistakes(setup: Setup, times: dict, tier: str) -> Iterator[tuple[dict, str]]:
    """What each known mistake makes of the extra times, and what to say about it."""
    right = setup.extra()
    # Where everything is scaled, so is the little that was not put there.
    if _agree({cell: 1000 * ms for cell, ms in times.items()}, right, "cuda"):
        yield times, "these times are in seconds: return milliseconds, as elapsed_time does"
    of_each = {cell: ms / setup.steps for cell, ms in times.items()}
    if _agree(of_each, setup.extra(statistics.fmean), tier):
        yield times, "these times are added up over the timed steps: take the median"
    yield from _mistakes_of_steps(setup)
    yield from _mistakes_of_kinds(setup, right)
    yield from _mistakes_of_stages(setup, right)
    yield from _mistakes_of_optimizer(right, times)


def _mistakes_of_steps(setup: Setup) -> Iterator[tuple[dict, str]]:
    every = slice(None)
    warmup = "these times include the warm-up steps: only the last `steps` steps count"
    yield setup.extra(timed=every), warmup
    yield setup.extra(statistics.fmean, every), warmup
    yield setup.extra(timed=slice(setup.steps)), warmup
    mean = "these are means over the timed steps, which one slow step moves: take the median"
    yield setup.extra(statistics.fmean), mean
    single = "these are the times of the {} timed step alone: take the median over all of them"
    yield setup.extra(lambda ms: ms[0]), single.format("first")
    yield setup.extra(lambda ms: ms[-1]), single.format("last")
    yield setup.extra(min), single.format("fastest")
    yield setup.extra(max), single.format("slowest")


def _mistakes_of_kinds(setup: Setup, right: dict) -> Iterator[tuple[dict, str]]:
    forward, backward, again = ((setup.stage, kind) for kind in KINDS)
    counted = right[backward] + right[again]
    message = (
        "recomputation is counted as backward time: a layer's backward time is what is left of "
        "its share of the backward pass once the recomputation is taken out"
    )
    yield right | {backward: counted}, message
    yield (
        right | {backward: counted, again: 0.0},
        "the recompute time is 0, and what belongs there is in the backward time: checkpoint ends "
        "a recomputed forward with an exception, so the forward hook needs always_call=True",
    )
    yield right | {again: 0.0}, "the recomputation's extra time is missing from recompute"
    yield (
        right | {forward: right[forward] + right[again], again: 0.0},
        "recomputation is counted as forward time: in_backward() tells the two apart",
    )
    if setup.stage == "head":
        missed = "the head ends at the loss, not at the output of lm_head: its time is missing"
        yield right | {forward: 0.0}, missed
        yield right | {forward: 0.0, backward: right[forward] + right[backward]}, missed
        yield right | {backward: 0.0}, missed


def _mistakes_of_stages(setup: Setup, right: dict) -> Iterator[tuple[dict, str]]:
    forward, backward, again = ((setup.stage, kind) for kind in KINDS)
    place = setup.names.index(setup.stage)
    nothing = right | {forward: 0.0, backward: 0.0, again: 0.0}
    neighbours = [i for i in (place + 1, place - 1) if 0 <= i < len(setup.names)]
    for other, moved in product(neighbours, product([True, False], repeat=3)):
        name = setup.names[other]
        found_in = [name if m else setup.stage for m in moved]
        wrong = dict(nothing)
        wrong[found_in[0], "forward"] += right[forward]
        # The recomputation lies in the share of the backward pass of the stage it belongs to, and
        # is taken out of the share of the stage that it is said to belong to.
        wrong[found_in[1], "backward"] += right[backward] + right[again]
        wrong[found_in[2], "recompute"] += right[again]
        wrong[found_in[2], "backward"] -= right[again]
        kinds = " and ".join(kind for kind, m in zip(KINDS, moved, strict=True) if m)
        which = "next" if other > place else "previous"
        yield (
            wrong,
            f"{kinds} time of {setup.stage} turned up in {name}, the {which} stage: the times are "
            "off by one stage. The gradient of a stage's output is known when the backward pass "
            "is about to enter that stage",
        )


def _mistakes_of_optimizer(right: dict, times: dict) -> Iterator[tuple[dict, str]]:
    optimizer, extra = ("optimizer", ""), right["optimizer", ""]
    for name in ("embed", "head"):
        cell = (name, "backward")
        message = (
            f"the optimizer's time is counted in the backward time of {name}: that stage ends "
            "where backward() does"
        )
        yield right | {cell: right[cell] + extra}, message
        yield right | {cell: right[cell] + extra, optimizer: 0.0}, message
    yield right | {optimizer: 0.0}, "the optimizer's time is missing from optimizer_ms"
    total = sum(ms for (_, kind), ms in times.items() if kind in ("backward", "recompute"))
    yield (
        right | {optimizer: extra + total},
        "optimizer_ms includes the backward pass: it begins where the backward pass ends",
    )


def _cell(cell: tuple[str, str]) -> str:
    name, kind = cell
    return f"the {kind} time of {name}" if kind else "optimizer_ms"


def _counts(seen: dict, setup: Setup) -> str:
    return (
        f"stage_times ran {len(seen['passes'])} forward passes and {seen['steps']} optimizer "
        f"steps; warmup={setup.warmup} and steps={setup.steps} make {setup.warmup + setup.steps} "
        "of each"
    )


def _hooks(left: dict[str, int]) -> str:
    name, n = next(iter(left.items()))
    return f"{sum(left.values())} in all, {n} on {name}"


def _kind(value) -> str:
    if isinstance(value, torch.Tensor):
        return "a tensor"
    return "None" if value is None else f"{type(value).__name__} {value!s:.60}"


def _relative_error(tensor, right: torch.Tensor) -> float:
    if not isinstance(tensor, torch.Tensor) or tensor.shape != right.shape:
        return float("inf")
    error = float((tensor - right).double().norm() / right.double().norm())
    return error if math.isfinite(error) else float("inf")
