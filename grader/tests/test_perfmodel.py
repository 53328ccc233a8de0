"""The performance model's formulas against counts made another way, and what its tests say."""

from dataclasses import asdict, replace
from math import prod
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from a1 import perfmodel
from olmoe.config import OlmoeConfig
from olmoe.data import random_micro_batch
from olmoe.model import Olmoe
from olmoe.train import lm_loss, make_optimizer
from shared.assignment import assignment
from shared.gpus import COURSE_GPU, gpu

from ..exact import check_numbers
from ..probes import perfmodel as probes
from ..proof.corpus import cases
from ..public import test_c2, test_c3, test_c8
from ..public.counts import sample_config
from ..suite import wire

L40 = gpu("NVIDIA L40")
SMALL = OlmoeConfig(
    n_layers=2, d_model=32, n_heads=4, d_expert=16, n_experts=6, experts_per_token=2, vocab_size=96
)


@st.composite
def configs(draw) -> OlmoeConfig:
    return sample_config(Random(draw(st.integers(0, 2**32))))


# ---- the figures that the assignment quotes ----------------------------------------------------


def test_published_figures():
    olmoe = OlmoeConfig()
    assert round(perfmodel.param_count(olmoe) / 1e9, 2) == 6.92
    assert round(perfmodel.active_params(olmoe) / 1e9, 2) == 1.18
    assert round(perfmodel.state_bytes(olmoe) / 2**30, 2) == 51.55
    assert round(perfmodel.optimizer_floor_ms(olmoe.with_layers(2), L40), 2) == 16.94
    flops = perfmodel.flops_per_token(olmoe.with_layers(2), 2048)
    assert 0.319 <= 39_204 * flops / 181e12 <= 0.320
    assert perfmodel.gemm_flops(16, 2048, 2048) == 134_217_728
    assert perfmodel.gemm_bytes(16, 2048, 2048) == 8_519_680
    assert round(perfmodel.roofline_tflops(134_217_728, 8_519_680, L40), 1) == 13.6
    assert perfmodel.roofline_tflops(819e6, 1e6, L40) == 181


def test_one_short_sequence_is_memory_bound_and_many_are_compute_bound():
    compute_ms, memory_ms = perfmodel.forward_floor_ms(OlmoeConfig(), 1, 512)
    assert compute_ms < memory_ms
    compute_ms, memory_ms = perfmodel.forward_floor_ms(OlmoeConfig(), 32, 512)
    assert compute_ms > memory_ms


# ---- against counts of the model itself --------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(configs())
def test_parameters_are_those_of_the_model(cfg):
    model = Olmoe(cfg, device="meta")
    assert perfmodel.param_count(cfg) == sum(p.numel() for p in model.parameters())


@settings(max_examples=20, deadline=None)
@given(configs())
def test_active_parameters_are_the_matrices_that_a_token_meets(cfg):
    active = 0
    for name, p in Olmoe(cfg, device="meta").named_parameters():
        if name == "embed.weight" or "norm" in name:
            continue
        of_experts = name.endswith(("gate_up", "down"))
        active += p.numel() * cfg.experts_per_token // cfg.n_experts if of_experts else p.numel()
    assert perfmodel.active_params(cfg) == active


class _Arithmetic(TorchDispatchMode):
    """Counts the multiply-adds of every matrix product; torch's own counter skips grouped ones.

    Those of attention apart, and by half: they are computed in full here, and then masked.
    """

    def __init__(self, n_heads: int = 0):
        super().__init__()
        self.n_heads = n_heads
        self.weights = self.attention = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.removeprefix("aten::")
        if name == "bmm" and args[0].shape[0] == self.n_heads:
            self.attention += prod(args[0].shape) * args[1].shape[-1] / 2
        elif name in ("mm", "bmm", "_grouped_mm"):
            # Grouped: rows times one weight each, or, for a weight's gradient, products of rows.
            self.weights += prod(args[0].shape) * args[1].shape[-1]
        elif name.startswith("_scaled_dot_product") and "backward" not in name:
            heads, queries, width = args[0].shape[-3:]
            self.attention += 2 * heads * width * queries * queries / 2
        else:
            assert name not in ("addmm", "baddbmm", "matmul", "linear"), f"{name} is not counted"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("seqlen", [8, 48])
@pytest.mark.parametrize("n_layers", [1, 3])
def test_flops_are_those_of_a_training_step_operation_by_operation(seqlen, n_layers):
    cfg = SMALL.with_layers(n_layers)
    model = Olmoe(cfg)
    batch = random_micro_batch(cfg, 2, seqlen)
    with _Arithmetic(cfg.n_heads) as forward:
        loss = lm_loss(model(batch.tokens, batch.seqs), batch.targets, batch.n_targets)
    with _Arithmetic(cfg.n_heads) as backward:
        loss.backward()
    assert backward.weights == 2 * forward.weights
    tokens = 2 * seqlen
    # Attention's own backward recomputes its scores, which the convention does not count.
    counted = 2 * 3 * (forward.weights + forward.attention) / tokens
    assert perfmodel.flops_per_token(cfg, seqlen) == pytest.approx(counted, rel=1e-12)


def test_rows_are_those_that_the_experts_get():
    tokens = 37
    experts = torch.rand(tokens, SMALL.n_experts).topk(SMALL.experts_per_token).indices
    rows = torch.bincount(experts.flatten(), minlength=SMALL.n_experts)
    assert perfmodel.rows_per_expert(SMALL, tokens) == pytest.approx(rows.double().mean().item())


class _OptimizerTensors(TorchDispatchMode):
    """The lists of tensors that the fused optimizer is given, and how they were before."""

    def __init__(self):
        super().__init__()
        self.lists = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func._schema.name == "aten::_fused_adamw_":
            self.lists = [[(t, t.clone()) for t in tensors] for tensors in args[:4]]
        return func(*args, **(kwargs or {}))


def test_state_and_traffic_are_those_of_an_optimizer_step():
    model = Olmoe(SMALL, dtype=torch.bfloat16)
    optimizer = make_optimizer(model, lr=0.1)
    batch = random_micro_batch(SMALL, 2, 16)
    for _ in range(2):  # the second step begins with moments that are not zero
        optimizer.zero_grad()
        lm_loss(model(batch.tokens, batch.seqs), batch.targets, batch.n_targets).backward()
        with _OptimizerTensors() as seen:
            optimizer.step()
    assert len(seen.lists) == 4  # weights, gradients, two moments
    state = sum(t.nbytes for tensors in seen.lists for t, _ in tensors)
    written = sum(
        t.nbytes
        for tensors in seen.lists
        if any(not torch.equal(t, before) for t, before in tensors)
        for t, _ in tensors
    )
    assert perfmodel.state_bytes(SMALL) == state
    floor_ms = (state + written) / (COURSE_GPU.peak_gbs * 1e9) * 1e3
    assert perfmodel.optimizer_floor_ms(SMALL) == pytest.approx(floor_ms, rel=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.tuples(*[st.integers(1, 40)] * 3))
def test_a_gemm_is_as_many_operations_and_bytes_as_its_tensors_say(shape):
    m, k, n = shape
    a, b = torch.empty(m, k, dtype=torch.bfloat16), torch.empty(k, n, dtype=torch.bfloat16)
    with _Arithmetic() as seen:
        c = torch.mm(a, b)
    assert perfmodel.gemm_flops(m, k, n) == 2 * seen.weights
    assert perfmodel.gemm_bytes(m, k, n) == a.nbytes + b.nbytes + c.nbytes


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 10**15), st.integers(1, 10**12))
def test_no_kernel_is_faster_than_either_resource_allows(flops, nbytes):
    seconds = flops / (perfmodel.roofline_tflops(flops, nbytes, L40) * 1e12)
    assert seconds >= flops / 181e12 * (1 - 1e-9)
    assert seconds >= nbytes / 864e9 * (1 - 1e-9)
    assert seconds == pytest.approx(max(flops / 181e12, nbytes / 864e9))


# ---- the predictor -----------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 8),
    st.integers(1, 16),
    st.sampled_from([128, 256, 512, 1024, 2048, 4096]),
    st.booleans(),
)
def test_predictions_respect_the_floors_and_grow_with_the_work(layers, sequences, seqlen, again):
    cfg = OlmoeConfig(n_layers=layers)
    step_ms = perfmodel.predict_step_ms(cfg, sequences, seqlen, again)
    peak_gib = perfmodel.predict_peak_gib(cfg, sequences, seqlen, again)
    compute_ms, _ = perfmodel.forward_floor_ms(cfg, sequences, seqlen)
    assert step_ms > 3 * compute_ms + perfmodel.optimizer_floor_ms(cfg)
    assert peak_gib > perfmodel.state_bytes(cfg) / 2**30
    more = (replace(cfg, n_layers=layers + 1), sequences, seqlen, again)
    assert perfmodel.predict_step_ms(*more) > step_ms
    assert perfmodel.predict_peak_gib(*more) > peak_gib
    assert perfmodel.predict_step_ms(cfg, 2 * sequences, seqlen, again) >= step_ms
    assert perfmodel.predict_peak_gib(cfg, 2 * sequences, seqlen, again) >= peak_gib
    assert perfmodel.predict_step_ms(cfg, sequences, seqlen, True) >= step_ms
    assert perfmodel.predict_peak_gib(cfg, sequences, seqlen, True) <= peak_gib


@pytest.mark.parametrize(
    ("arguments", "published_gib"),
    [((8, 2048, True), 15.45), ((8, 1024, True), 10.65), ((1, 512, False), 7.8)],
)
def test_memory_is_near_the_published_peaks_of_two_layers(arguments, published_gib):
    """Those that a layer's implementation hardly moves; peak memory depends on no GPU."""
    predicted_gib = perfmodel.predict_peak_gib(OlmoeConfig(n_layers=2), *arguments)
    assert predicted_gib == pytest.approx(published_gib, rel=0.03)


# ---- the tests of the exercises, over many draws -----------------------------------------------

TESTS = {
    test.__number__: test
    for module in (test_c2, test_c3, test_c8)
    for test in vars(module).values()
    if hasattr(test, "__number__")
}
SEEDS = range(12)
CORPUS = [c for c in cases({"C2", "C3", "C8"}) if c.change.count("# file:") == 1]


class _Lab:
    """A lab whose a1.perfmodel is the given source."""

    def __init__(self, source: str):
        self.module = type("Module", (), {})
        namespace = {"__name__": "a1.perfmodel"}
        exec(compile(source, "perfmodel.py", "exec"), namespace)
        for name, value in namespace.items():
            setattr(self.module, name, staticmethod(value) if callable(value) else value)

    def load(self, name):
        assert name == "a1.perfmodel"
        return self.module


def _said(source: str, number: str, seed: int) -> str:
    """What a test says about a solution; "" if it passes."""
    lab = _Lab(source)

    def probe(name, /, **arguments):
        sent = wire.decode(wire.encode(arguments))
        return wire.decode(wire.encode(getattr(probes, name.partition(".")[2])(lab, **sent)))

    test = TESTS[number]
    wants = {"probe": probe, "draw": Random(seed)}
    names = test.__code__.co_varnames[: test.__code__.co_argcount]
    try:
        test(**{name: wants[name] for name in names})
    except AssertionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("case", CORPUS, ids=lambda c: c.name)
def test_every_draw_gives_the_same_verdict_and_diagnosis(case):
    source = case.files()["a1/perfmodel.py"].decode()
    own = [n for n in TESTS if n.startswith(f"{case.exercise}.")]
    others = {c.says for c in CORPUS if c.wrong and c.says != case.says}
    for seed in SEEDS:
        said = {number: _said(source, number, seed) for number in own}
        if not case.wrong:
            assert not any(said.values()), said
            continue
        assert case.says in said[case.caught_by]
        assert not [o for o in others if o in said[case.caught_by]]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (True, "returned a bool"),
        ("12", "returned a string"),
        (None, "returned None: is there a `return`"),
        (float("nan"), "returned nan, which is not a finite number"),
        (float("inf"), "returned inf, which is not a finite number"),
        ([1, 2], "returned several values"),
        (wire.Opaque("a1.perfmodel.EqualsEverything"), "EqualsEverything; it must return a number"),
        (torch.tensor(1.0), "returned a tensor"),
        pytest.param(10**400, "returned a number beyond all bounds", id="huge"),
        (8, "f(1) should be 7, got 8"),
        (7.5, "f(1) should be 7, got 7.5"),
    ],
)
def test_what_is_no_right_number_is_refused_in_words(value, told):
    with pytest.raises(AssertionError) as caught:
        check_numbers(["f(1)"], [value], [7])
    assert told in str(caught.value)


@pytest.mark.parametrize("value", [7, 7.0, 7.0 + 1e-12])
def test_a_right_number_of_either_kind_passes(value):
    check_numbers(["f(1)"], [value], [7])


def test_an_object_that_equals_everything_passes_no_test():
    source = "class Equal:\n    def __eq__(self, other):\n        return True\n" + "".join(
        f"def {name}(*args):\n    return Equal()\n"
        for exercise in assignment().of_kind("coding")
        if exercise.file == "a1/perfmodel.py"
        for name in exercise.implements
    )
    for number in TESTS:
        assert "Equal" in _said(source, number, 0), number


def test_the_floors_must_be_two_numbers():
    solution = "def forward_floor_ms(*args):\n    return {}\n"
    for value, told in [("1.0", "one number"), ("(1, 2, 3)", "3 values"), ("None", "it must")]:
        assert told in _said(solution.format(value), "C3.6", 0)
    assert "(compute_ms, memory_ms)" in _said(solution.format("1.0"), "C3.6", 0)


def test_configs_reach_the_hand_in_as_they_were_drawn():
    cfg = sample_config(Random(1))
    lab = _Lab("def f(cfg, gpu):\n    return [cfg.n_experts, gpu.peak_gbs]\n")
    (seen,) = probes.values(
        lab, function="f", calls=[[{"config": asdict(cfg)}, {"gpu": {"peak_gbs": 5.0}}]]
    )
    assert seen == [cfg.n_experts, 5.0]
