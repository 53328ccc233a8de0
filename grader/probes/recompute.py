"""Coding Exercise 5: what a pass with recomputation computes, keeps, and runs again."""

from __future__ import annotations

import contextlib
import functools

import torch
from torch.utils.checkpoint import checkpoint

from olmoe.config import OlmoeConfig
from olmoe.data import pack


def recomputed_passes(lab, *, n_layers: int, lengths: list[int], seed: int) -> dict:
    """One forward and backward pass of each kind, with the same weights and the same tokens.

    Returns {"plain": ..., "recomputed": ..., "reference": ...}: the hand-in's model without and
    with recomputation, and a model known to be right, with recomputation. Each is what `_one_pass`
    returns. "stages" are the names used in them, in model order.
    """
    micro_batch = random_sequences(lab, lengths, seed)
    right = tiny_model(lab, recomputing_olmoe(lab), n_layers, seed)
    model = tiny_model(lab, lab.load("olmoe.model").Olmoe, n_layers, seed)
    model.load_state_dict(right.state_dict())
    loss_of = lab.released("olmoe.train").lm_loss
    return {
        "stages": [name for name, _ in stages_of(model)],
        "plain": _one_pass(lab, model, loss_of, micro_batch, recompute=False),
        "recomputed": _one_pass(lab, model, loss_of, micro_batch, recompute=True),
        "reference": _one_pass(lab, right, loss_of, micro_batch, recompute=True),
    }


def _one_pass(lab, model, loss_of, micro_batch, recompute: bool) -> dict:
    """What one pass did.

    logits, gradients   the tensors; a gradient is None where none arrived
    log                 in order: "forward NAME" and "recompute NAME" when the forward of a stage
                        began, outside and inside of the backward pass; "gradient NAME" when the
                        gradient of its output was known
    hooked              the same "forward" and "recompute" entries, as the module's hooks saw them
    nodes               names of the kinds of nodes in the autograd graph of the logits
    kept_bytes          allocated by the forward pass and still there when it ended
    peak_bytes          most allocated at any moment of the backward pass, counted from the same
                        zero as kept_bytes
    """
    model.zero_grad(set_to_none=True)
    before = lab.gpu.allocated_bytes()
    with _watched(model) as (log, hooked):
        logits = model(micro_batch.tokens, micro_batch.seqs, recompute=recompute)
        loss = loss_of(logits, micro_batch.targets, micro_batch.n_targets)
        kept_bytes = lab.gpu.allocated_bytes() - before
        nodes = _kinds_of_nodes(logits)
        lab.gpu.reset_peak()
        loss.backward()
        peak_bytes = lab.gpu.peak_bytes() - before
    gradients = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    return {
        "logits": logits,
        "gradients": gradients,
        "log": log,
        "hooked": hooked,
        "nodes": nodes,
        "kept_bytes": kept_bytes,
        "peak_bytes": peak_bytes,
    }


@contextlib.contextmanager
def _watched(model):
    """Writes down every forward of a stage: yields (log, hooked), see `_one_pass`.

    The classes' `forward` is replaced, because a recomputation need not go through `__call__`,
    or through the instance at all.
    """
    log, hooked, handles = [], [], []
    names = {module: name for name, module in stages_of(model)}
    originals = {kind: kind.forward for kind in map(type, names)}

    def told(forward):
        @functools.wraps(forward)
        def wrapper(module, *args, **kwargs):
            name, again = names.get(module), in_backward()
            if name:
                log.append(f"{'recompute' if again else 'forward'} {name}")
            output = forward(module, *args, **kwargs)
            if name and not again and output.requires_grad:
                output.register_hook(lambda _: log.append(f"gradient {name}"))
            return output

        return wrapper

    def hook(module, args):
        hooked.append(f"{'recompute' if in_backward() else 'forward'} {names[module]}")

    try:
        for kind, forward in originals.items():
            kind.forward = told(forward)
        handles += [module.register_forward_pre_hook(hook) for module in names]
        yield log, hooked
    finally:
        for kind, forward in originals.items():
            kind.forward = forward
        for handle in handles:
            handle.remove()


def _kinds_of_nodes(output) -> list[str]:
    todo, seen, kinds = [output.grad_fn], set(), set()
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            kinds.add(type(node).__name__)
            todo += [upstream for upstream, _ in node.next_functions]
    return sorted(kinds)


def in_backward() -> bool:
    """Whether the calling thread is inside a backward pass."""
    return torch._C._current_graph_task_id() >= 0


def stages_of(model) -> list[tuple[str, torch.nn.Module]]:
    """Every module that `Olmoe.forward` calls, by name, in model order."""
    layers = [(f"layers.{i}", layer) for i, layer in enumerate(model.layers)]
    return [("embed", model.embed), *layers, ("norm", model.norm), ("lm_head", model.lm_head)]


def recomputing_olmoe(lab):
    """The released Olmoe with a forward pass of our own, which can recompute."""

    released = lab.released("olmoe.model")

    class Recomputing(released.Olmoe):
        def forward(self, tokens, seqs, recompute=False):
            hidden = self.embed(tokens)
            where = (seqs, released.rope_tables(seqs.positions, self.cfg, hidden.dtype))
            for layer in self.layers:
                if recompute:
                    hidden = checkpoint(layer, hidden, *where, use_reentrant=False)
                else:
                    hidden = layer(hidden, *where)
            return self.lm_head(self.norm(hidden))

    return Recomputing


def tiny_model(lab, kind, n_layers: int, seed: int):
    """A model small enough for a test, with random weights.

    Every token goes to every expert: which ones a router picks may hang on the last bit, and
    then on how many tokens go through it at once.
    """
    cfg = OlmoeConfig(
        n_layers=n_layers,
        d_model=32,
        n_heads=2,
        d_expert=16,
        n_experts=4,
        experts_per_token=4,
        vocab_size=96,
    )
    torch.manual_seed(seed)
    dtype = torch.bfloat16 if lab.gpu.tier == "cuda" else torch.float32
    model = kind(cfg, device=lab.device, dtype=dtype)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                # Large enough that every layer changes the result, and its gradient is not noise.
                p.normal_(std=0.15)
    return model


def random_sequences(lab, lengths: list[int], seed: int):
    """A micro batch of random sequences of these lengths."""
    generator = torch.Generator().manual_seed(seed)
    ids = [torch.randint(96, (n + 1,), generator=generator).tolist() for n in lengths]
    return prepared(pack(ids, device=lab.device))


def prepared(micro_batch):
    """`micro_batch`, with everything computed that is computed once and kept."""
    _ = micro_batch.seqs.positions
    return micro_batch
