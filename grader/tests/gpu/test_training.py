"""A training step: a slow layer's time is found where it is, with and without recomputation."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from grader.gpu import open_gpu


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    def __init__(self, layers=3, width=16):
        super().__init__()
        self.embed = nn.Embedding(10, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))

    def forward(self, tokens, recompute):
        x = self.embed(tokens)
        for layer in self.layers:
            x = self.run(layer, x, recompute)
        return x

    @staticmethod
    def run(layer, x, recompute):
        if recompute is None:
            return layer(x)
        return checkpoint(layer, x, use_reentrant=recompute == "reentrant")


def new_model():
    torch.manual_seed(0)
    return Model().to("cuda")


def layer_times(model, recompute):
    """Forward, backward and recompute ms of each layer in one step, by hooks and events."""
    stages = list(model.layers)
    events = {}
    handles = []

    def mark(stage, what):
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        events[stage, what] = event

    def in_backward():
        return torch._C._current_graph_task_id() >= 0

    for i, stage in enumerate(stages):

        def before(module, args, i=i):
            mark(i, "recompute starts" if in_backward() else "forward starts")

        def after(module, args, output, i=i):
            if in_backward():
                mark(i, "recompute ends")
            else:
                mark(i, "forward ends")
                output.register_hook(lambda grad: mark(i, "backward starts"))

        handles.append(stage.register_forward_pre_hook(before))
        handles.append(stage.register_forward_hook(after, always_call=True))

    def after_embed(module, args, output):
        output.register_hook(lambda grad: mark(-1, "backward starts"))

    handles.append(model.embed.register_forward_hook(after_embed))
    model(torch.arange(8, device="cuda"), recompute).square().mean().backward()
    torch.cuda.synchronize()
    for handle in handles:
        handle.remove()

    def between(stage, what, end_stage, end):
        return events[stage, what].elapsed_time(events[end_stage, end])

    times = []
    for i in range(len(stages)):
        again = between(i, "recompute starts", i, "recompute ends") if recompute else 0.0
        times.append(
            SimpleNamespace(
                forward=between(i, "forward starts", i, "forward ends"),
                backward=between(i, "backward starts", i - 1, "backward starts") - again,
                recompute=again,
            )
        )
    return times


@pytest.mark.parametrize("slow", [0, 1, 2])
@pytest.mark.parametrize("recompute", [None, "non-reentrant"])
def test_a_slow_layer_shows_where_it_is(gpu, recompute, slow):
    model = new_model()
    plain = layer_times(model, recompute)
    with gpu.slow(model.layers[slow], forward_ms=30.0, backward_ms=50.0):
        slowed = layer_times(model, recompute)
    for i, (before, after) in enumerate(zip(plain, slowed, strict=True)):
        extra = 1.0 if i == slow else 0.0
        assert after.forward - before.forward == pytest.approx(30.0 * extra, abs=0.05)
        assert after.backward - before.backward == pytest.approx(50.0 * extra, abs=0.05)
        recomputed = 30.0 * extra if recompute else 0.0
        assert after.recompute - before.recompute == pytest.approx(recomputed, abs=0.05)


def step_ms(gpu, model, recompute):
    gpu.sync()
    start = gpu.host_ms()
    model(torch.arange(8, device="cuda"), recompute).square().mean().backward()
    gpu.sync()
    model.zero_grad()
    return gpu.host_ms() - start


@pytest.mark.parametrize(
    ("recompute", "extra_ms"), [(None, 80), ("non-reentrant", 110), ("reentrant", 110)]
)
def test_a_slow_layer_costs_its_delays(gpu, recompute, extra_ms):
    model = new_model()
    plain = step_ms(gpu, model, recompute)
    with gpu.slow(model.layers[1], forward_ms=30.0, backward_ms=50.0):
        assert step_ms(gpu, model, recompute) - plain == pytest.approx(extra_ms, abs=0.1)
    assert step_ms(gpu, model, recompute) == pytest.approx(plain, abs=1e-6)
    assert "forward" not in vars(model.layers[1])


def test_a_slow_first_stage_takes_no_gradient_and_is_slow_all_the_same(gpu):
    model = new_model()
    plain = step_ms(gpu, model, None)
    with gpu.slow(model.embed, forward_ms=30.0, backward_ms=50.0):
        assert step_ms(gpu, model, None) - plain == pytest.approx(80.0, abs=0.1)


def test_delays_change_neither_values_nor_gradients(gpu):
    def run(delayed):
        torch.manual_seed(0)
        x = torch.randn(4, 3, device="cuda", requires_grad=True)
        y = x + 1
        y = gpu.delay(y, 1.0, 2.0) if delayed else y
        y.mul_(3)  # autograd forbids this on a view that a custom function returned
        y.square().sum().backward()
        return y.detach(), x.grad

    for plain, delayed in zip(run(False), run(True), strict=True):
        assert torch.equal(plain, delayed)


@pytest.mark.parametrize("recompute", [None, "non-reentrant", "reentrant"])
@pytest.mark.parametrize("optimizer", ["fused", "foreach", "plain"])
def test_results_are_those_without_a_virtual_gpu(recompute, optimizer):
    def train():
        model = Model()
        arguments = {} if optimizer == "plain" else {optimizer: True}
        adamw = torch.optim.AdamW(model.parameters(), lr=1e-2, **arguments)
        for _ in range(3):
            model(torch.arange(8), recompute).square().mean().backward()
            adamw.step()
            adamw.zero_grad()
        return [parameter.detach().numpy().copy() for parameter in model.parameters()]

    torch.manual_seed(0)
    expected = train()
    with open_gpu("virtual"):
        torch.manual_seed(0)
        seen = train()
    assert all((a == b).all() for a, b in zip(expected, seen, strict=True))
