"""Coding 8: `state_bytes`, `optimizer_floor_ms`."""

from dataclasses import asdict

from gradescope_utils.autograder_utils.decorators import number, weight

from olmoe.config import OlmoeConfig
from shared.gpus import COURSE_GPU, gpu

from ..exact import check_numbers
from .counts import PARAM_MISTAKES, RIGHT, params, sample_config, sample_gpu, variants

CASES = 6
OLMOE = OlmoeConfig()


def _described(cfg: OlmoeConfig) -> str:
    differ = {k: v for k, v in asdict(cfg).items() if v != getattr(OLMOE, k)}
    return f"OlmoeConfig({', '.join(f'{k}={v}' for k, v in differ.items())})"


# What is stored of a parameter, in bf16: the weight, its gradient, and two moments.
STATE = {"weight": 2, "gradient": 2, "first moment": 2, "second moment": 2}
STATE_BYTES = sum(STATE.values())
# What a step of AdamW moves of it: everything is read, and all but the gradient written.
MOVED_BYTES = STATE_BYTES + STATE_BYTES - STATE["gradient"]


@number("C8.1")
@weight(2)
def test_training_state(probe, draw):
    """state_bytes counts weights, gradients and two moments: 51.55 GiB for OLMoE-1B-7B."""
    configs = [OLMOE, *(sample_config(draw) for _ in range(CASES))]
    calls = [[{"config": asdict(c)}] for c in configs]
    seen = probe("perfmodel.values", function="state_bytes", calls=calls)

    def with_bytes(per_parameter):
        return lambda i: per_parameter * params(configs[i])

    right = with_bytes(STATE_BYTES)
    mistakes = [
        (
            "state_bytes counts 4 bytes per parameter. If they are the weight and its gradient, "
            "AdamW's two moments are missing; if they are four numbers, each has two bytes",
            with_bytes(4),
        ),
        ("state_bytes counts the weights alone", with_bytes(2)),
        (
            "state_bytes counts 6 bytes per parameter, one number too few: there are the weight, "
            "its gradient and two moments",
            with_bytes(6),
        ),
        (
            "state_bytes counts four bytes per number: all of the state is bf16, two bytes",
            with_bytes(16),
        ),
        (
            "state_bytes counts the moments in fp32: they are bf16 here, like the weights",
            with_bytes(12),
        ),
        ("state_bytes is in GiB: it should be in bytes", lambda i: right(i) / 2**30),
        ("state_bytes is in GB: it should be in bytes", lambda i: right(i) / 1e9),
        *(
            (f"state_bytes: {words}", lambda i, c=c: STATE_BYTES * params(configs[i], c))
            for words, c in variants(RIGHT, PARAM_MISTAKES)
        ),
    ]
    check_numbers(
        [f"state_bytes({_described(c)})" for c in configs],
        seen,
        [right(i) for i in range(len(configs))],
        mistakes,
    )


@number("C8.2")
@weight(2)
def test_floor_of_the_optimizer(probe, draw):
    """optimizer_floor_ms is AdamW's traffic at peak bandwidth: 16.94 ms for 2 layers on an L40."""
    cases = [(OLMOE.with_layers(2), gpu("NVIDIA L40"), True), (OLMOE, COURSE_GPU, False)]
    cases += [(sample_config(draw), sample_gpu(draw), True) for _ in range(CASES)]
    calls = [
        [{"config": asdict(cfg)}, *([{"gpu": {"peak_gbs": on.peak_gbs}}] if named else [])]
        for cfg, on, named in cases
    ]
    seen = probe("perfmodel.values", function="optimizer_floor_ms", calls=calls)

    def with_bytes(per_parameter, choices=RIGHT, per_gb=1e9, on=None):
        def floor_ms(i):
            cfg, its_gpu, _ = cases[i]
            nbytes = per_parameter * params(cfg, choices)
            return nbytes / ((on or its_gpu).peak_gbs * per_gb) * 1e3

        return floor_ms

    right = with_bytes(MOVED_BYTES)
    mistakes = [
        (
            "optimizer_floor_ms counts 8 bytes per parameter, which is reads only: the weight and "
            "the moments are written, too",
            with_bytes(STATE_BYTES),
        ),
        (
            "optimizer_floor_ms counts 6 bytes per parameter. If they are the writes, the reads "
            "are missing; if they are the weight twice and its gradient, the moments are",
            with_bytes(MOVED_BYTES - STATE_BYTES),
        ),
        (
            "optimizer_floor_ms writes the gradient, too: AdamW only reads it",
            with_bytes(2 * STATE_BYTES),
        ),
        (
            "optimizer_floor_ms forgets the gradient, which has to be read",
            with_bytes(MOVED_BYTES - STATE["gradient"]),
        ),
        (
            "optimizer_floor_ms counts four bytes per number: everything is bf16, two bytes",
            with_bytes(2 * MOVED_BYTES),
        ),
        (
            "optimizer_floor_ms counts numbers, not bytes: a bf16 number has two",
            with_bytes(MOVED_BYTES / 2),
        ),
        (
            "optimizer_floor_ms takes a GB as 2**30 bytes: GB/s are 1e9 bytes a second",
            with_bytes(MOVED_BYTES, per_gb=2**30),
        ),
        (
            "optimizer_floor_ms is in seconds: it should be in milliseconds",
            lambda i: right(i) / 1e3,
        ),
        (
            "optimizer_floor_ms is in microseconds: it should be in milliseconds",
            lambda i: right(i) * 1e3,
        ),
        (
            "optimizer_floor_ms takes the course's GPU, whichever GPU it is given",
            with_bytes(MOVED_BYTES, on=COURSE_GPU),
        ),
        *(
            (f"optimizer_floor_ms: {words}", with_bytes(MOVED_BYTES, c))
            for words, c in variants(RIGHT, PARAM_MISTAKES)
        ),
    ]
    check_numbers(
        [f"optimizer_floor_ms({_described(cfg)}) at {on.peak_gbs:g} GB/s" for cfg, on, _ in cases],
        seen,
        [right(i) for i in range(len(cases))],
        mistakes,
    )
