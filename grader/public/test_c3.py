"""Coding 3: the model in numbers, from `param_count` to `forward_floor_ms`."""

import math
from dataclasses import asdict, dataclass

from gradescope_utils.autograder_utils.decorators import number, weight

from olmoe.config import OlmoeConfig
from shared.gpus import COURSE_GPU, Gpu, gpu

from ..exact import check_numbers, checked_number, kind_of
from .counts import (
    ACTIVE,
    ACTIVE_MISTAKES,
    FLOPS_MISTAKES,
    PARAM_MISTAKES,
    RIGHT,
    params,
    sample_config,
    sample_gpu,
    training_flops,
    variants,
)

CASES = 6
OLMOE = OlmoeConfig()


def _configs(draw) -> list[OlmoeConfig]:
    return [OLMOE, *(sample_config(draw) for _ in range(CASES))]


def _described(cfg: OlmoeConfig) -> str:
    if cfg == OLMOE:
        return "OlmoeConfig()"
    differ = {k: v for k, v in asdict(cfg).items() if v != getattr(OLMOE, k)}
    return f"OlmoeConfig({', '.join(f'{k}={v}' for k, v in differ.items())})"


def _calls(configs, *more) -> list[list]:
    rest = more or [[]] * len(configs)
    return [[{"config": asdict(c)}, *r] for c, r in zip(configs, rest, strict=True)]


def _check_params(probe, draw, function, right, mistakes):
    configs = _configs(draw)
    seen = probe("perfmodel.values", function=function, calls=_calls(configs))
    check_numbers(
        [f"{function}({_described(c)})" for c in configs],
        seen,
        [params(c, right) for c in configs],
        [
            (f"{function}: {words}", lambda i, choices=choices: params(configs[i], choices))
            for words, choices in variants(right, mistakes)
        ],
    )


@number("C3.1")
@weight(2)
def test_all_parameters(probe, draw):
    """param_count counts every parameter: 6.92 billion of OLMoE-1B-7B, and of any other config."""
    _check_params(probe, draw, "param_count", RIGHT, PARAM_MISTAKES)


@number("C3.2")
@weight(3)
def test_active_parameters(probe, draw):
    """active_params counts the weights a token is multiplied by: 1.18 billion of OLMoE-1B-7B."""
    _check_params(probe, draw, "active_params", ACTIVE, ACTIVE_MISTAKES)


@number("C3.3")
@weight(2)
def test_flops_per_token(probe, draw):
    """flops_per_token counts forward and backward, with causal attention."""
    configs = _configs(draw)
    lengths = [2048, *(draw.randint(100, 5000) for _ in range(CASES))]
    calls = _calls(configs, *([length] for length in lengths))
    seen = probe("perfmodel.values", function="flops_per_token", calls=calls)

    def counted(choices):
        return lambda i: training_flops(configs[i], lengths[i], choices)

    check_numbers(
        [
            f"flops_per_token({_described(c)}, {length})"
            for c, length in zip(configs, lengths, strict=True)
        ],
        seen,
        [counted(ACTIVE)(i) for i in range(len(configs))],
        [
            (f"flops_per_token: {words}", counted(choices))
            for words, choices in variants(ACTIVE, FLOPS_MISTAKES)
        ],
    )


@number("C3.4")
@weight(1)
def test_mfu_of_the_published_step(probe):
    """flops_per_token gives the published step, 39,204 tokens/s on an L40, its MFU of 31.9%."""
    cfg, tokens_per_s, seqlen, l40 = OLMOE.with_layers(2), 39_204, 2048, gpu("NVIDIA L40")
    calls = [[{"config": asdict(cfg)}, seqlen]]
    (flops,) = probe("perfmodel.values", function="flops_per_token", calls=calls)
    call = f"flops_per_token({_described(cfg)}, {seqlen})"
    mfu = 100 * tokens_per_s * checked_number(flops, call) / (l40.peak_tflops * 1e12)
    assert 31.9 <= mfu <= 32.0, (
        f"{tokens_per_s:,} tokens/s of a {cfg.n_layers}-layer model in sequences of {seqlen} are "
        f"between 31.9% and 32.0% of the L40's {l40.peak_tflops:g} TFLOP/s; with your "
        f"flops_per_token they are {mfu:.4g}%"
    )


@number("C3.5")
@weight(1)
def test_rows_per_expert(probe, draw):
    """rows_per_expert is the mean number of rows, which need not be whole."""
    configs = [OLMOE, *(sample_config(draw) for _ in range(CASES))]
    tokens = [_uneven(draw, c) for c in configs]
    calls = _calls(configs, *([t] for t in tokens))
    seen = probe("perfmodel.values", function="rows_per_expert", calls=calls)
    routed = [t * c.experts_per_token for t, c in zip(tokens, configs, strict=True)]
    experts = [c.n_experts for c in configs]
    mistakes = [
        (
            "rows_per_expert rounds down (integer division?): the mean need not be whole",
            lambda i: routed[i] // experts[i],
        ),
        (
            "rows_per_expert rounds: the mean need not be whole",
            lambda i: round(routed[i] / experts[i]),
        ),
        (
            "rows_per_expert rounds up: the mean need not be whole",
            lambda i: math.ceil(routed[i] / experts[i]),
        ),
        (
            "rows_per_expert sends each token to one expert; it goes to experts_per_token of them",
            lambda i: tokens[i] / experts[i],
        ),
        (
            "rows_per_expert sends each token to one expert, and rounds: it goes to "
            "experts_per_token of them, and the mean need not be whole",
            lambda i: tokens[i] // experts[i],
        ),
        (
            "rows_per_expert returns the rows of all experts together: divide by their number",
            lambda i: routed[i],
        ),
        (
            "rows_per_expert divides by experts_per_token: every token makes that many rows, which "
            "are shared by n_experts experts",
            lambda i: tokens[i] / configs[i].experts_per_token,
        ),
        (
            "rows_per_expert returns every token for every expert: only experts_per_token of the "
            "n_experts get a row of it",
            lambda i: tokens[i],
        ),
    ]
    check_numbers(
        [f"rows_per_expert({_described(c)}, {t})" for c, t in zip(configs, tokens, strict=True)],
        seen,
        [r / e for r, e in zip(routed, experts, strict=True)],
        mistakes,
    )


def _uneven(draw, cfg) -> int:
    """A number of tokens that the experts cannot share evenly."""
    while True:
        tokens = draw.randint(100, 9000)
        if tokens * cfg.experts_per_token % cfg.n_experts:
            return tokens


@dataclass(frozen=True)
class Pass:
    """A forward pass, the GPU it runs on, and how `forward_floor_ms` is called for it."""

    cfg: OlmoeConfig
    micro_batch_size: int
    seqlen: int
    gpu: Gpu
    named: bool  # whether the GPU is passed; if not, it is the default

    @property
    def arguments(self) -> list:
        gpu = {"peak_tflops": self.gpu.peak_tflops, "peak_gbs": self.gpu.peak_gbs}
        rest = [{"gpu": gpu}] if self.named else []
        return [{"config": asdict(self.cfg)}, self.micro_batch_size, self.seqlen, *rest]

    def __str__(self) -> str:
        gpu = (
            f"a GPU of {self.gpu.peak_tflops:g} TFLOP/s and {self.gpu.peak_gbs:g} GB/s"
            if self.named
            else f"the course's GPU, {self.gpu.name}"
        )
        call = f"{_described(self.cfg)}, {self.micro_batch_size}, {self.seqlen}"
        return f"forward_floor_ms({call}) on {gpu}"

    def compute_ms(self, choices=ACTIVE, tokens=None, forward=1 / 3, gpu=None) -> float:
        """Milliseconds of its arithmetic; `tokens` and `forward` are what can be got wrong."""
        tokens = self.micro_batch_size * self.seqlen if tokens is None else tokens
        flops = tokens * forward * training_flops(self.cfg, self.seqlen, choices)
        return flops / ((gpu or self.gpu).peak_tflops * 1e9)

    def memory_ms(self, choices=RIGHT, nbytes=2, gb=1e9, gpu=None) -> float:
        """Milliseconds in which its weights are read."""
        return nbytes * params(self.cfg, choices) / ((gpu or self.gpu).peak_gbs * gb) * 1e3


COMPUTE_MISTAKES = [
    (
        "it counts the backward pass too: a forward pass is a third of flops_per_token",
        lambda p: p.compute_ms(forward=1),
    ),
    (
        "it counts half of a step: a forward pass is a third of flops_per_token",
        lambda p: p.compute_ms(forward=1 / 2),
    ),
    (
        "it counts the tokens of one sequence, not of all micro_batch_size of them",
        lambda p: p.compute_ms(tokens=p.seqlen),
    ),
    ("it is of one token, not of the whole micro batch", lambda p: p.compute_ms(tokens=1)),
    ("it is in seconds, not in milliseconds", lambda p: p.compute_ms() / 1e3),
    ("it is in microseconds, not in milliseconds", lambda p: p.compute_ms() * 1e3),
    ("it is for the course's GPU, whichever is given", lambda p: p.compute_ms(gpu=COURSE_GPU)),
    *(
        (words, lambda p, choices=choices: p.compute_ms(choices))
        for words, choices in variants(ACTIVE, FLOPS_MISTAKES)
    ),
]

MEMORY_MISTAKES = [
    (
        "it reads the active weights of one token only: the floor reads every weight once",
        lambda p: p.memory_ms(ACTIVE),
    ),
    ("it takes a weight as four bytes: bf16 has two", lambda p: p.memory_ms(nbytes=4)),
    ("it takes a weight as one byte: bf16 has two", lambda p: p.memory_ms(nbytes=1)),
    ("it takes a GB as 2**30 bytes: GB/s are 1e9 bytes a second", lambda p: p.memory_ms(gb=2**30)),
    (
        "it reads the whole training state: the floor reads every weight once",
        lambda p: p.memory_ms(nbytes=8),
    ),
    (
        "it reads the weights again for every sequence: the floor reads every weight once",
        lambda p: p.memory_ms() * p.micro_batch_size,
    ),
    (
        "it reads the weights again for every token: the floor reads every weight once",
        lambda p: p.memory_ms() * p.micro_batch_size * p.seqlen,
    ),
    ("it is in seconds, not in milliseconds", lambda p: p.memory_ms() / 1e3),
    ("it is in microseconds, not in milliseconds", lambda p: p.memory_ms() * 1e3),
    ("it is for the course's GPU, whichever is given", lambda p: p.memory_ms(gpu=COURSE_GPU)),
    *(
        (words, lambda p, choices=choices: p.memory_ms(choices))
        for words, choices in variants(RIGHT, PARAM_MISTAKES)
    ),
]


@number("C3.6")
@weight(2)
def test_floors_of_a_forward_pass(probe, draw):
    """forward_floor_ms returns (compute, memory), both in milliseconds, for the GPU it is given."""
    passes = [Pass(OLMOE, 1, 512, COURSE_GPU, False), Pass(OLMOE, 32, 512, COURSE_GPU, False)]
    for _ in range(CASES):
        cfg, other = sample_config(draw), sample_gpu(draw)
        passes.append(Pass(cfg, draw.randint(2, 9), draw.randint(100, 5000), other, True))
    calls = [p.arguments for p in passes]
    seen = probe("perfmodel.values", function="forward_floor_ms", calls=calls)
    assert type(seen) is list and len(seen) == len(passes), "the probe's answer is incomplete"
    for value, one in zip(seen, passes, strict=True):
        shown = kind_of(value) if type(value) not in (int, float) else "one number"
        shown = f"{len(value)} values" if type(value) is list else shown
        assert type(value) is list and len(value) == 2, (
            f"{one} returned {shown}; it must return two: (compute_ms, memory_ms)"
        )
    names = [str(p) for p in passes]
    compute, memory = ([pair[i] for pair in seen] for i in (0, 1))
    _check_order(names, compute, memory, passes)
    for which, values, right, mistakes in (
        ("compute floor", compute, Pass.compute_ms, COMPUTE_MISTAKES),
        ("memory floor", memory, Pass.memory_ms, MEMORY_MISTAKES),
    ):
        check_numbers(
            [f"the {which} of {name}" for name in names],
            values,
            [right(p) for p in passes],
            [
                (f"forward_floor_ms, {which}: {words}", lambda i, f=f: f(passes[i]))
                for words, f in mistakes
            ],
        )


def _check_order(names, compute, memory, passes):
    """Names the one mistake that concerns both floors."""
    try:
        check_numbers(names, compute, [p.memory_ms() for p in passes])
        check_numbers(names, memory, [p.compute_ms() for p in passes])
    except AssertionError:
        return
    raise AssertionError(
        "forward_floor_ms returns (memory, compute): the compute floor comes first"
    )
