"""What `cuda_time` and `annotate` do, seen from beside them."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

# ---- cuda_time -----------------------------------------------------------------------------------


def timed_calls(
    lab, *, warmup: int, repeats: int, work_ms: list[float], host_ms: list[float]
) -> dict:
    """`cuda_time` on a function whose k-th call is known.

    Call k enqueues `work_ms[k]` of GPU work and then keeps the host busy for `host_ms[k]`, which
    is less: so the GPU's queue never runs dry, and the host's time is in no GPU time. Calls beyond
    the lists are like the last one.

    Returns the value that came back; how often the function was called, and with what; the host's
    clock at the start of each call and at the end of everything; and, for each call, how often the
    host synchronized after it and before the next.
    """
    cuda_time = lab.load("olmoe.prof").cuda_time
    began_ms: list[float] = []
    arguments: list[str] = []
    steps: list[tuple[int, int]] = []  # where each call begins and ends in the log

    with lab.gpu.record() as log:

        def fn(*args, **kwargs):
            began_ms.append(lab.gpu.host_ms())
            begins = len(log)
            arguments.extend(type(a).__name__ for a in (*args, *kwargs.values()))
            k = min(len(steps), len(work_ms) - 1)
            lab.gpu.work(work_ms[k])
            lab.gpu.host(host_ms[k])
            steps.append((begins, len(log)))
            return "a value that nobody needs"

        returned = cuda_time(fn, warmup=warmup, repeats=repeats)
        ended_ms = lab.gpu.host_ms()

    ends = [begins for begins, _ in steps[1:]] + [len(log)]
    waits = [
        sum(event["kind"] == "synchronize" for event in log[after:before])
        for (_, after), before in zip(steps, ends, strict=True)
    ]
    return {
        "returned": returned,
        "calls": len(steps),
        "arguments": arguments,
        "began_ms": began_ms,
        "ended_ms": ended_ms,
        "waits": waits,
    }


# ---- annotate ------------------------------------------------------------------------------------


class Refusal(Exception):
    """What a block of the toy model raises, and its parent may catch."""


class Block(nn.Module):
    """A module made from a description, which writes into the log where its forward is.

    A description is {"children": {name: description or list of them}, "calls": [paths of the
    children that forward calls, in order], "raises": bool, "catches": bool}. A list of
    descriptions becomes an nn.ModuleList.
    """

    def __init__(self, described: dict, path: str = ""):
        super().__init__()
        self._path, self._log = path, []
        self._calls = list(described["calls"])
        self._raises, self._catches = described["raises"], described["catches"]
        self.scale = nn.Parameter(torch.ones(4))
        for name, child in described["children"].items():
            inner = f"{path}.{name}" if path else name
            if isinstance(child, list):
                blocks = (Block(one, f"{inner}.{i}") for i, one in enumerate(child))
                self.add_module(name, nn.ModuleList(blocks))
            else:
                self.add_module(name, Block(child, inner))

    def forward(self, x):
        self._log.append({"kind": "enter", "name": self._path})
        x = torch.sin(self.scale * x)
        try:
            for path in self._calls:
                x = self.get_submodule(path)(x)
        except Refusal:
            if not self._catches:
                raise
        if self._raises:
            raise Refusal(f"block {self._path!r} refuses")
        self._log.append({"kind": "leave", "name": self._path})
        return x


class _Toy:
    """The toy model, an input for it, and what one call of it leaves in the log."""

    def __init__(self, lab, described: dict, shared: dict[str, str], seed: int):
        self.gpu = lab.gpu
        self.model = Block(described).to(lab.device)
        for path, original in shared.items():
            parent, _, name = path.rpartition(".")
            module = self.model.get_submodule(original)
            self.model.get_submodule(parent).add_module(name, module)
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(3, 4, generator=generator).to(lab.device)

    def call(self) -> dict:
        """-> {"steps": [[kind, name]...], "waits": int, "output": tensor or None, "raised": str}"""
        output, raised = None, None
        with self.gpu.record() as log:
            for block in self.model.modules():
                if isinstance(block, Block):
                    block._log = log
            try:
                output = self.model(self.x)
            except Refusal as error:
                raised = str(error)
        return {**_read(log), "output": output, "raised": raised}


def _read(log: list[dict]) -> dict:
    """The ranges and the marks of a log in order, and how often the host synchronized."""
    kinds = {"range_push": "push", "range_pop": "pop", "enter": "enter", "leave": "leave"}
    steps = [
        [kinds[e["kind"]], "" if e["kind"] == "range_pop" else e["name"]]
        for e in log
        if e["kind"] in kinds
    ]
    return {"steps": steps, "waits": sum(e["kind"] == "synchronize" for e in log)}


def annotated_toy(lab, *, described: dict, shared: dict[str, str], seed: int) -> dict:
    """`annotate` on the toy model, called twice: the second call is like the first."""
    toy = _Toy(lab, described, shared, seed)
    lab.load("olmoe.prof").annotate(toy.model)
    return {"first": toy.call(), "second": toy.call()}


def removed(lab, *, described: dict, shared: dict[str, str], seed: int) -> dict:
    """The toy model before `annotate`, with it, after its hooks are removed, and annotated anew.

    Every block has forward hooks of somebody else's, put on before and after `annotate`; how often
    these were called in each of the four calls is "others".
    """
    annotate = lab.load("olmoe.prof").annotate
    toy = _Toy(lab, described, shared, seed)
    others = [0]

    def count(*_):
        others[0] += 1

    def put_on():
        for block in toy.model.modules():
            block.register_forward_pre_hook(count)
            block.register_forward_hook(count)

    def call() -> dict:
        others[0] = 0
        return {**toy.call(), "others": others[0]}

    put_on()
    before = call()
    remove = annotate(toy.model)
    seen = {"before": before, "with": call(), "callable": callable(remove), "returned": remove}
    if callable(remove):
        put_on()
        remove()
        seen["after"] = call()
        annotate(toy.model)
        seen["again"] = call()
    return seen


def annotated_olmoe(lab, *, n_layers: int, seqlen: int, seed: int) -> dict:
    """`annotate` on the released model, forward and backward, with recomputation.

    Every layer is checkpointed here, not by the model, whose own recomputation is another
    exercise. PyTorch ends a recomputed forward by an exception.
    """
    from olmoe.config import OlmoeConfig
    from olmoe.data import random_micro_batch

    released = lab.released("olmoe.model")
    cfg = OlmoeConfig(
        n_layers=n_layers,
        d_model=128,
        n_heads=2,
        d_expert=64,
        n_experts=8,
        experts_per_token=2,
        vocab_size=256,
    )
    model = released.Olmoe(cfg, device=lab.device, dtype=torch.bfloat16)
    batch = random_micro_batch(cfg, 2, seqlen, device=lab.device, seed=seed)
    for layer in model.layers:
        _checkpoint_calls(layer)
    lab.load("olmoe.prof").annotate(model)
    with lab.gpu.record() as log:
        logits = model(batch.tokens, batch.seqs)
        forward_ends = len(log)
        logits.float().square().mean().backward()
    return {"forward": _read(log[:forward_ends]), "backward": _read(log[forward_ends:])}


def _checkpoint_calls(layer: nn.Module) -> None:
    """Make every call of `layer`, hooks included, a checkpoint.

    Python looks `__call__` up on the class, so the layer gets a class of its own.
    """
    plain = type(layer)

    def call(self, *args):
        return checkpoint(super(kind, self).__call__, *args, use_reentrant=False)

    kind = type(plain.__name__, (plain,), {"__call__": call})
    layer.__class__ = kind
