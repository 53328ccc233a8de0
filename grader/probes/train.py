"""Coding Exercises 6 and 7: what accumulated_step and stage_times do to a model, and say of it.

Both run on the released model, with a forward pass of our own where it recomputes, so that
nothing depends on the hand-in's `olmoe/model.py`.
"""

from __future__ import annotations

import copy
import dataclasses

import torch
from torch import nn

from olmoe.data import IGNORE, pack

from .recompute import prepared, random_sequences, recomputing_olmoe, tiny_model

PHASES = ("forward", "backward", "optimizer")


# Coding Exercise 6


def accumulation(
    lab, *, n_layers: int, parts: list[list[dict]], seed: int, stale: bool, recompute: bool
) -> dict:
    """One accumulated_step on `parts`, and what a step on the same sequences should do.

    parts: the micro batches, each a list of sequences {"length": n, "ignored": k}: of n tokens
    the first k have no target.
    stale: whether there is something in `.grad` before the step.

    A gradient is a flat tensor over all parameters, zeros where a parameter has none.
    """
    model = tiny_model(lab, recomputing_olmoe(lab), n_layers, seed)
    other = copy.deepcopy(model)
    sequences = _random_ids(parts, seed)
    micro_batches = [_masked(lab, part) for part in sequences]
    whole = _masked(lab, [sequence for part in sequences for sequence in part])

    seen = {
        "n_targets": [m.n_targets for m in micro_batches],
        "n_tokens": [m.tokens.numel() for m in micro_batches],
        "whole": _whole_step(lab, other, whole),
        "alone": [_pass_alone(lab, other, m, recompute) for m in micro_batches],
        "stale": torch.zeros(()),
        "gradient_bytes": sum(p.nbytes for p in model.parameters()),
    }
    del other, whole
    if stale:
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        seen["stale"] = _gradient(model)

    optimizer = RecordingSGD(model)
    passes, alive_bytes = [], []
    handle = model.register_forward_pre_hook(
        lambda module, args, kwargs: (
            passes.append(_call_of(args, kwargs)),
            alive_bytes.append(lab.gpu.allocated_bytes() - optimizer.recorded_bytes),
            None,
        )[-1],
        with_kwargs=True,
    )
    before = lab.gpu.allocated_bytes()
    lab.gpu.reset_peak()
    with lab.gpu.record() as log:
        returned = lab.load("olmoe.train").accumulated_step(
            model, optimizer, micro_batches, recompute=recompute
        )
    handle.remove()
    return seen | {
        "returned": _tensor_facts(returned),
        "gradients": optimizer.gradients,
        "steps": optimizer.n_steps,
        "left": [name for name, p in model.named_parameters() if p.grad is not None],
        "passes": passes,
        "alive_bytes": [n - before for n in alive_bytes],
        "peak_bytes": lab.gpu.peak_bytes() - before,
        "ranges": [e["name"] for e in log if e["kind"] == "range_push" and e["name"] in PHASES],
        "waits": _waits(log),
    }


class RecordingSGD(torch.optim.SGD):
    """Plain gradient descent that keeps the gradients it was given. Its update *is* the gradient.

    (AdamW's first update is close to the gradient's sign, whatever its size.)
    """

    def __init__(self, model, lr: float = 0.05):
        super().__init__(model.parameters(), lr=lr)
        self.model = model
        self.n_steps = 0
        self.gradients: list[torch.Tensor] = []

    @property
    def recorded_bytes(self) -> int:
        return sum(g.nbytes for g in self.gradients)

    def step(self, closure=None):
        self.n_steps += 1
        if len(self.gradients) < 4:  # enough to name what is wrong, whatever is handed in
            self.gradients.append(_gradient(self.model))
        super().step(closure)


def _gradient(model) -> torch.Tensor:
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    return torch.cat([g.detach().flatten() for g in parts])


def _random_ids(parts, seed: int) -> list[list[tuple[list[int], int]]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        [
            (torch.randint(96, (s["length"] + 1,), generator=generator).tolist(), s["ignored"])
            for s in part
        ]
        for part in parts
    ]


def _masked(lab, sequences: list[tuple[list[int], int]]):
    """A micro batch of `sequences`, each with its number of leading tokens without a target."""
    micro_batch = pack([ids for ids, _ in sequences])
    targets = micro_batch.targets.clone()
    start = 0
    for ids, ignored in sequences:
        targets[start : start + ignored] = IGNORE
        start += len(ids) - 1
    n_targets = int((targets != IGNORE).sum())
    masked = dataclasses.replace(micro_batch, targets=targets, n_targets=n_targets)
    return prepared(masked.to(lab.device))


def _whole_step(lab, model, micro_batch) -> dict:
    """The released train_step, with all sequences in one micro batch."""
    model = copy.deepcopy(model)
    optimizer = RecordingSGD(model)
    before = lab.gpu.allocated_bytes()
    lab.gpu.reset_peak()
    loss = lab.released("olmoe.train").train_step(model, optimizer, micro_batch)
    return {
        "loss": loss,
        "gradient": optimizer.gradients[0],
        "peak_bytes": lab.gpu.peak_bytes() - before,
    }


def _pass_alone(lab, model, micro_batch, recompute: bool) -> dict:
    """The gradient of the *sum* of one micro batch's cross-entropies, and what its pass keeps."""
    model.zero_grad(set_to_none=True)
    before = lab.gpu.allocated_bytes()
    logits = model(micro_batch.tokens, micro_batch.seqs, recompute=recompute)
    loss = lab.released("olmoe.train").lm_loss(logits, micro_batch.targets, 1)
    kept_bytes = lab.gpu.allocated_bytes() - before
    loss.backward()
    gradient = _gradient(model)
    model.zero_grad(set_to_none=True)
    return {"loss": loss, "gradient": gradient, "kept_bytes": kept_bytes}


def _call_of(args, kwargs) -> dict:
    """How many tokens a call of the model got, and whether it was to recompute."""
    given = dict(zip(("tokens", "seqs", "recompute"), args, strict=False)) | kwargs
    tokens = given.get("tokens")
    return {
        "tokens": tokens.numel() if isinstance(tokens, torch.Tensor) else -1,
        "recompute": bool(given.get("recompute", False)),
    }


def _tensor_facts(value) -> dict:
    """What `value` is, and the value itself when it is a tensor or a plain number."""
    facts = {"type": type(value).__name__, "value": value}
    if isinstance(value, torch.Tensor):
        facts |= {
            "shape": list(value.shape),
            "dtype": str(value.dtype),
            "requires_grad": value.requires_grad,
        }
    return facts


def _waits(log: list[dict]) -> list[str]:
    """What made the host wait for the GPU, in order."""
    return [str(e.get("name") or "a synchronization") for e in log if e["kind"] == "synchronize"]


# Coding Exercise 7


def stage_times(
    lab,
    *,
    n_layers: int,
    lengths: list[int],
    seed: int,
    slow: str,
    forward_ms: list[float],
    backward_ms: list[float],
    optimizer_ms: list[float],
    recompute: bool,
    warmup: int,
    steps: int,
    raises_at: int = -1,
    compare: bool = False,
) -> dict:
    """One call of stage_times on a model in which one place is slow.

    slow: "embed", "layers.2", "norm", "lm_head", or "logits": between lm_head and the loss.
    forward_ms, backward_ms, optimizer_ms: what that place, and the optimizer's step, take longer
    in each step, warm-up included.
    raises_at: the step, counted from 0, in which that place raises instead.
    compare: whether to say also what the same number of training steps should have done.
    """
    model = tiny_model(lab, _olmoe_slow_behind_the_head(lab), n_layers, seed)
    same = copy.deepcopy(model) if compare else None
    start = _weights(model)
    micro_batch = random_sequences(lab, lengths, seed)
    optimizer = SlowSGD(model, lab.gpu, optimizer_ms)
    _slow_down(model, slow, Delay(lab.gpu, model.passes, forward_ms, backward_ms, raises_at))
    someones_hook = model.layers[0].register_forward_hook(lambda *_: None)
    for p in model.parameters():
        p.grad = torch.ones_like(p)  # a step that does not clear these is seen in its update

    hooks_before, raised, returned = _hooks_on(model, optimizer), "", None
    with lab.gpu.record() as log:
        optimizer.log = model.log = log
        try:
            returned = lab.load("olmoe.train").stage_times(
                model, optimizer, micro_batch, recompute=recompute, warmup=warmup, steps=steps
            )
        except DeliberateError as error:
            raised = str(error)
    hooks_after = _hooks_on(model, optimizer)
    seen = {
        "returned": returned,
        "raised": raised,
        "steps": optimizer.n_steps,
        "passes": [{"recompute": again} for again in model.passes],
        "n_events": sum(entry["kind"] == "event_record" for entry in log),
        "waits": [
            name
            for begin, end in zip(model.begins, optimizer.ends, strict=False)
            for name in _waits(log[begin:end])
        ],
        "hooks_left": {
            name: n - hooks_before.get(name, 0)
            for name, n in hooks_after.items()
            if n > hooks_before.get(name, 0)
        },
        "hooks_lost": [n for n in hooks_before if hooks_after.get(n, 0) < hooks_before[n]],
        "left": [name for name, p in model.named_parameters() if p.grad is not None],
    }
    someones_hook.remove()
    if compare:
        seen["update"] = _weights(model) - start
        seen["right_update"] = _trained(lab, same, micro_batch, warmup + steps) - start
    return seen


class DeliberateError(RuntimeError):
    """Raised by a layer on purpose."""


class Delay:
    """Makes the tensor it is given late, by amounts that differ from step to step."""

    def __init__(self, gpu, passes: list, forward_ms, backward_ms, raises_at):
        self.gpu, self.passes, self.raises_at = gpu, passes, raises_at
        self.forward_ms, self.backward_ms = forward_ms, backward_ms

    def __call__(self, x):
        step = len(self.passes) - 1
        if step == self.raises_at:
            raise DeliberateError(f"a layer raised this in step {step}")
        forward_ms, backward_ms = _nth(self.forward_ms, step), _nth(self.backward_ms, step)
        return self.gpu.delay(x, forward_ms=forward_ms, backward_ms=backward_ms)


def _nth(amounts: list[float], step: int) -> float:
    return amounts[min(step, len(amounts) - 1)]


class SlowSGD(torch.optim.SGD):
    """Gradient descent whose steps take longer, and are counted."""

    def __init__(self, model, gpu, extra_ms: list[float], lr: float = 0.05):
        super().__init__(model.parameters(), lr=lr)
        self.gpu, self.extra_ms, self.n_steps, self.log = gpu, extra_ms, 0, []
        self.ends: list[int] = []  # where in the log each step ends

    def step(self, closure=None):
        self.gpu.work(_nth(self.extra_ms, self.n_steps))
        super().step(closure)
        self.n_steps += 1
        self.ends.append(len(self.log))


class SlowInput(nn.Module):
    """A module whose input is late. Early in a layer: checkpoint stops before a layer's end."""

    def __init__(self, inner: nn.Module, delay: Delay):
        super().__init__()
        self.inner, self.delay = inner, delay

    def forward(self, x):
        return self.inner(self.delay(x))


class SlowOutput(SlowInput):
    """A module whose output is late."""

    def forward(self, x):
        return self.delay(self.inner(x))


def _slow_down(model, place: str, delay: Delay) -> None:
    if place == "logits":
        model.delay = delay
    elif place == "embed":
        model.embed = SlowOutput(model.embed, delay)  # token ids cannot wait for a gradient
    elif place in ("norm", "lm_head"):
        setattr(model, place, SlowInput(getattr(model, place), delay))
    else:
        layer = model.layers[int(place.removeprefix("layers."))]
        layer.attn_norm = SlowInput(layer.attn_norm, delay)


def _olmoe_slow_behind_the_head(lab):
    class Timed(recomputing_olmoe(lab)):
        """Writes down its passes, and may be slow after every hook on `lm_head` has been called."""

        delay = staticmethod(lambda logits: logits)

        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.log, self.begins, self.passes = [], [], []

        def forward(self, tokens, seqs, recompute=False):
            self.begins.append(len(self.log))
            self.passes.append(bool(recompute))
            return self.delay(super().forward(tokens, seqs, recompute))

    return Timed


def _trained(lab, model, micro_batch, steps: int) -> torch.Tensor:
    """The weights after `steps` of the released train_step."""
    optimizer = SlowSGD(model, lab.gpu, [0.0])
    for _ in range(steps):
        lab.released("olmoe.train").train_step(model, optimizer, micro_batch)
    return _weights(model)


def _weights(model) -> torch.Tensor:
    return torch.cat([p.detach().float().flatten() for p in model.parameters()])


def _hooks_on(model, optimizer) -> dict[str, int]:
    """How many hooks are on each module and parameter, on all modules at once, on the optimizer.

    A method put in the place of a module's or the optimizer's own counts as one too.
    """
    of_module = (
        "_forward_hooks",
        "_forward_pre_hooks",
        "_backward_hooks",
        "_backward_pre_hooks",
    )
    of_parameter = ("_backward_hooks", "_post_accumulate_grad_hooks")
    everywhere = (
        "_global_forward_hooks",
        "_global_forward_pre_hooks",
        "_global_backward_hooks",
        "_global_backward_pre_hooks",
    )
    counts = {}
    for name, module in model.named_modules():
        replaced = sum(method in vars(module) for method in ("forward", "__call__"))
        counts[name or "the model"] = _count(module, of_module) + replaced
    for name, parameter in model.named_parameters():
        counts[name] = _count(parameter, of_parameter)
    counts["all modules"] = _count(nn.modules.module, everywhere)
    on_optimizer = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
    counts["the optimizer"] = _count(optimizer, on_optimizer) + ("step" in vars(optimizer))
    return counts


def _count(owner, attributes) -> int:
    return sum(len(getattr(owner, attribute, None) or ()) for attribute in attributes)
