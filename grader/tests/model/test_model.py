"""The model against itself: its two implementations of the experts, and what must not matter."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from olmoe.config import OlmoeConfig
from olmoe.data import Seqs
from olmoe.model import Combine, Dispatch, MoE, Olmoe, grouped_linear, init_weights

from .samples import (
    configs,
    difference,
    examples,
    lengths,
    one_pass,
    sample_config,
    sample_micro_batch,
    sample_model,
)

# The same arithmetic in another order.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2}


def as_naive(model: Olmoe) -> Olmoe:
    naive = copy.deepcopy(model)
    for layer in naive.layers:
        layer.moe.moe_impl = "naive"
    return naive


def check_same(a, b, tolerance: float):
    (logits_a, gradients_a), (logits_b, gradients_b) = a, b
    assert difference(logits_a, logits_b) <= tolerance
    for name, gradient in gradients_b.items():
        assert difference(gradients_a[name], gradient, least_norm=1e-2) <= tolerance, name


@contextlib.contextmanager
def poisoned_memory():
    """Memory that nobody has written to is NaN, as memory that was used before may be."""
    # torch does this itself in deterministic mode (torch.utils.deterministic).
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(4).isnan().all()
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@examples(15)
@given(configs, lengths, st.integers(0, 99), st.sampled_from([torch.float32, torch.float64]))
def test_naive_and_grouped_agree(cfg, lengths, seed, dtype):
    model = sample_model(cfg, dtype=dtype, seed=seed)
    micro_batch = sample_micro_batch(cfg, lengths, seed)
    with poisoned_memory():
        check_same(
            one_pass(model, micro_batch), one_pass(as_naive(model), micro_batch), TOLERANCE[dtype]
        )


def test_naive_and_grouped_agree_in_bf16():
    cfg = sample_config(n_layers=1)
    model = sample_model(cfg, dtype=torch.bfloat16)
    micro_batch = sample_micro_batch(cfg, [9, 1, 30])
    with poisoned_memory():
        a, b = one_pass(model, micro_batch), one_pass(as_naive(model), micro_batch)
    check_same(a, b, TOLERANCE[torch.bfloat16])


@pytest.mark.parametrize("moe_impl", ["grouped", "naive"])
def test_experts_without_tokens_get_a_gradient_of_zero(moe_impl):
    """On dirty memory too: a grouped GEMM must write the gradients of empty groups."""
    cfg = sample_config()
    moe = sample_model(cfg, moe_impl).layers[0].moe
    x = torch.rand(20, cfg.d_model) + 0.1
    with torch.no_grad():  # every token prefers experts 2, 5 and 7, in this order
        moe.router.fill_(-1)
        moe.router[[2, 5, 7]] = torch.tensor([0.3, 0.2, 0.1])[:, None]
    with poisoned_memory():
        moe(x).pow(2).sum().backward()
    empty = [0, 1, 3, 4, 6]
    for weight in (moe.gate_up, moe.down):
        assert weight.grad.isfinite().all()
        assert (weight.grad[empty] == 0).all()
        assert (weight.grad[[2, 5, 7]].flatten(1).norm(dim=1) > 0).all()


@pytest.mark.parametrize("moe_impl", ["grouped", "naive"])
def test_routing_weights_are_not_renormalized(moe_impl):
    """The softmax is over all experts: the weights of the chosen ones add up to less than 1."""
    cfg = sample_config(d_model=8, n_heads=1)
    moe = sample_model(cfg, moe_impl, torch.float64).layers[0].moe
    x = torch.randn(
        11, cfg.d_model, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    probs = (x @ moe.router.T).softmax(-1)
    renormalized, expected = torch.zeros_like(x), torch.zeros_like(x)
    for t in range(len(x)):
        chosen = probs[t].topk(cfg.experts_per_token).indices
        for e in chosen:
            gate, up = (moe.gate_up[e] @ x[t]).chunk(2)
            y = moe.down[e] @ (torch.nn.functional.silu(gate) * up)
            expected[t] += probs[t, e] * y
            renormalized[t] += probs[t, e] / probs[t, chosen].sum() * y
    seen = moe(x)
    # The router's softmax is in float32 whatever the weights are.
    assert difference(seen, expected) < 1e-6
    assert difference(seen, renormalized) > 0.1


@pytest.mark.parametrize("moe_impl", ["grouped", "naive"])
def test_a_sequence_does_not_depend_on_its_neighbours(moe_impl):
    cfg = sample_config()
    model = sample_model(cfg, moe_impl)
    together = sample_micro_batch(cfg, [4, 1, 17, 6])
    logits = model(together.tokens, together.seqs).split(together.seqs.lengths)
    for tokens, expected in zip(together.tokens.split(together.seqs.lengths), logits, strict=True):
        alone = model(tokens, Seqs.from_lengths([len(tokens)]))
        assert difference(alone, expected) < 1e-5


def test_a_token_does_not_depend_on_what_follows():
    cfg = sample_config()
    model = sample_model(cfg)
    tokens = sample_micro_batch(cfg, [12]).tokens
    changed = tokens.clone()
    changed[8:] = (changed[8:] + 1) % cfg.vocab_size
    seqs = Seqs.from_lengths([12])
    before, after = model(tokens, seqs), model(changed, seqs)
    assert torch.allclose(before[:8], after[:8], atol=1e-6)
    assert not torch.allclose(before[8:], after[8:], atol=1e-2)


def test_empty_sequences_change_nothing():
    cfg = sample_config()
    model = sample_model(cfg)
    tokens = sample_micro_batch(cfg, [3, 6]).tokens
    with poisoned_memory():
        plain = model(tokens, Seqs.from_lengths([3, 6]))
        sparse = model(tokens, Seqs.from_lengths([0, 0, 3, 0, 6, 0]))
        sparse.sum().backward()
    assert torch.equal(plain, sparse)
    assert all(p.grad.isfinite().all() for p in model.parameters())


@examples(6)
@given(configs, lengths, st.integers(0, 99))
def test_recomputation_changes_no_gradient(cfg, lengths, seed):
    model = sample_model(cfg, seed=seed)
    micro_batch = sample_micro_batch(cfg, lengths, seed)
    check_same(
        one_pass(model, micro_batch, recompute=True),
        one_pass(model, micro_batch),
        TOLERANCE[torch.float32],
    )


def test_grouped_never_waits_for_the_device():
    """Forward and backward on the meta device, where whatever needs a value raises."""
    with torch.device("meta"):
        cfg = sample_config()
        model = Olmoe(cfg, dtype=torch.bfloat16)
        seqs = Seqs(torch.empty(3, dtype=torch.int32), 6, (6, 5))
        logits = model(torch.empty(11, dtype=torch.int64), seqs, recompute=True)
        assert logits.shape == (11, cfg.vocab_size)
        logits.sum().backward()
        for layer in model.layers:
            layer.moe.moe_impl = "naive"
        with pytest.raises((NotImplementedError, RuntimeError)):  # it does wait: Written Question 2
            model(torch.empty(11, dtype=torch.int64), seqs)


@pytest.mark.parametrize("moe_impl", ["grouped", "naive"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_a_plain_sum_arrive(moe_impl, dtype):
    """`y.sum()` sends back one number with strides of 0, which grouped_mm refuses."""
    cfg = sample_config()
    moe = sample_model(cfg, moe_impl, dtype).layers[0].moe
    x = torch.randn(7, cfg.d_model, dtype=dtype, requires_grad=True)
    moe(x).sum().backward()
    assert x.grad.isfinite().all()
    assert all(p.grad.is_contiguous() for p in moe.parameters())


@pytest.mark.parametrize(
    ("dtype", "width"), [(torch.bfloat16, 12), (torch.float32, 6), (torch.float64, 8)]
)
def test_what_grouped_mm_cannot_multiply_is_looped_over(dtype, width):
    """Rows that are not a multiple of 16 bytes long, and float64."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(9, width, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(4, 5, width, generator=generator).to(dtype).requires_grad_()
    ends = torch.tensor([2, 2, 8, 9], dtype=torch.int32)
    y = grouped_linear(x, weight, ends)
    expert = torch.tensor([0, 0, 2, 2, 2, 2, 2, 2, 3])
    assert difference(y, torch.einsum("ti,toi->to", x, weight[expert])) < 1e-2
    y.sum().backward()
    assert (weight.grad[1] == 0).all() and x.grad.isfinite().all()


@examples(20)
@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 99))
def test_dispatch_and_combine_are_transposes(n_tokens, per_token, seed):
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(n_tokens * per_token, generator=generator)
    source, place = order // per_token, order.argsort().view(n_tokens, per_token)
    x = torch.randn(n_tokens, 3, dtype=torch.float64, generator=generator).requires_grad_()
    y = torch.randn(len(order), 3, dtype=torch.float64, generator=generator).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: Dispatch.apply(x, source, place), x)
    assert torch.autograd.gradcheck(lambda y: Combine.apply(y, source, place), y)
    assert torch.autograd.gradgradcheck(lambda y: Combine.apply(y, source, place), y)
    expected = torch.zeros_like(x).index_add(0, source, y)
    assert torch.allclose(Combine.apply(y, source, place), expected)


def test_modules_are_those_that_the_exercises_name():
    model = Olmoe(sample_config(n_layers=1))
    assert [name for name, _ in model.named_modules()] == [
        "", "embed", "layers", "layers.0", "layers.0.attn_norm", "layers.0.attn",
        "layers.0.moe_norm", "layers.0.moe", "norm", "lm_head",
    ]  # fmt: skip
    assert isinstance(model.layers[0].moe, MoE)


def test_the_real_size_has_the_published_number_of_parameters():
    with torch.device("meta"):
        model = Olmoe(OlmoeConfig())
    assert sum(p.numel() for p in model.parameters()) == 6_919_161_856


def test_weights_depend_on_the_seed_alone():
    cfg = sample_config()
    a, b, other = (Olmoe(cfg, seed=seed) for seed in (3, 3, 4))
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(a.embed.weight, other.embed.weight)
    for name, weight in a.named_parameters():
        if "norm" in name:
            assert (weight == 1).all(), name
        else:
            assert abs(weight.std().item() - 0.02) < 0.003, name
    init_weights(a, seed=4)
    assert torch.equal(a.embed.weight, other.embed.weight)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="moe_impl is 'fast'"):
        Olmoe(sample_config(), moe_impl="fast")
    model = Olmoe(sample_config())
    with pytest.raises(ValueError, match="describe 5 tokens"):
        # Rows past the last sequence would get gradients of NaN in silence.
        model(torch.zeros(6, dtype=torch.int64), Seqs.from_lengths([5]))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"d_model": 30, "n_heads": 4}, "cannot be split into 4 heads"),
        ({"d_model": 15, "n_heads": 3}, "even width"),
        ({"experts_per_token": 9}, "more than"),
        ({"n_experts": 257, "experts_per_token": 1}, "at most 256"),
        ({"n_layers": 0}, "at least 1"),
    ],
)
def test_impossible_sizes_are_named(changes, says):
    with pytest.raises(ValueError, match=says):
        sample_config(**changes)


def test_a_byte_is_enough_for_256_experts():
    cfg = sample_config(n_experts=256, experts_per_token=200, d_expert=4, n_layers=1)
    moe = sample_model(cfg).layers[0].moe
    x = torch.randn(5, cfg.d_model, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        grouped = moe(x)
        moe.moe_impl = "naive"
        assert difference(grouped, moe(x)) < 1e-5
