"""Coding 1: `cuda_time`."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from gradescope_utils.autograder_utils.decorators import number, weight

# How far a time may be from the work it timed: by so many ms, and by this share of the work.
# In virtual time only the launches' own microseconds are left; a real GPU's clock moves.
TOLERANCE_MS = {"virtual": 0.1, "cuda": 0.3}
TOLERANCE_SHARE = {"virtual": 0.0, "cuda": 0.12}
# A mistake is named when the times are this near to what it would give; amounts are drawn so that
# no two mistakes come nearer to one another than three times that.
NAMED_SHARE = 0.06
NAMED_MS = 0.01  # launches and readings of a clock


@dataclass(frozen=True)
class Amounts:
    """What each call of the timed function does."""

    warmup: int
    work_ms: list[float]  # of every call, the warm-up's first
    host_ms: list[float]  # less than the call's work, so that the queue never runs dry

    @property
    def repeats(self) -> int:
        return len(self.work_ms) - self.warmup

    @property
    def timed_ms(self) -> list[float]:
        return self.work_ms[self.warmup :]

    def observed(self, probe) -> dict:
        return probe(
            "prof.timed_calls",
            warmup=self.warmup,
            repeats=self.repeats,
            work_ms=self.work_ms,
            host_ms=self.host_ms,
        )


TO_THE_END = (
    "each time reaches from a call's launch to the end of everything, on the CPU's clock: record "
    "CUDA events around each call, which the GPU stamps when it gets there"
)
# What each mistake makes of the amounts, and what to say about it.
MISTAKES: list[tuple[Callable[[Amounts], list[float]], str]] = [
    (
        lambda a: [t * 1e3 for t in a.timed_ms],
        "these times are in microseconds; cuda_time returns milliseconds, as Event.elapsed_time "
        "does",
    ),
    (
        lambda a: a.host_ms[a.warmup :],
        "each of these is the time in which the host enqueued a call, not the time in which the "
        "GPU ran it: record a CUDA event before and after the call, not the CPU's clock",
    ),
    (
        lambda a: [sum(a.work_ms) - sum(a.host_ms[: a.warmup + i]) for i in range(a.repeats)],
        TO_THE_END,
    ),
    (
        lambda a: [
            sum(a.timed_ms) - sum(a.host_ms[a.warmup : a.warmup + i]) for i in range(a.repeats)
        ],
        TO_THE_END,
    ),
    (
        lambda a: [-t for t in a.timed_ms],
        "these times are negative: start.elapsed_time(end) is the time from start to end, and here "
        "the two are the wrong way round",
    ),
    (
        lambda a: [-sum(a.timed_ms[i + 1 : -1]) for i in range(a.repeats - 1)] + a.timed_ms[-1:],
        "each time counts from the start of the last call: one start event was recorded again and "
        "again, and an event keeps only its last record. Each call needs a pair of its own",
    ),
    (
        lambda a: sorted(a.timed_ms),
        "these times are sorted: return them in the order of the calls",
    ),
    (
        lambda a: sorted(a.timed_ms, reverse=True),
        "these times are sorted: return them in the order of the calls",
    ),
    (
        lambda a: a.timed_ms[::-1],
        "these times are in reverse: return them in the order of the calls",
    ),
    (
        lambda a: a.work_ms[: a.repeats],
        "these are the times of the first calls, which are the warm-up: leave them out and return "
        "those of the last calls",
    ),
    (
        lambda a: [sum(a.timed_ms) / a.repeats] * a.repeats,
        "every time is the mean of all, a total divided: each call needs its own pair of events",
    ),
    (
        lambda a: [sum(a.work_ms) / a.repeats] * a.repeats,
        "every time is the same, a total (with the warm-up in it) divided by the number of calls. "
        "Each call needs its own pair of events",
    ),
    (
        lambda a: [sum(a.timed_ms)] * a.repeats,
        "every time is the total of all timed calls: each call needs its own pair of events",
    ),
    (
        lambda a: [a.timed_ms[-1]] * a.repeats,
        "every time is that of the last call: one pair of events was recorded again and again, and "
        "an event keeps only its last record. Each call needs a pair of its own",
    ),
    (
        lambda a: [sum(a.timed_ms[: i + 1]) for i in range(a.repeats)],
        "each time reaches back to the start of the first timed call: each call needs a start "
        "event of its own",
    ),
    (
        lambda a: [sum(a.timed_ms[i:]) for i in range(a.repeats)],
        "each time reaches on to the end of the last call: each call needs an end event of its "
        "own, recorded right after it",
    ),
    (
        lambda a: [sum(a.work_ms[: a.warmup + i + 1]) for i in range(a.repeats)],
        "each time reaches back to the start of the warm-up: record a start event just before each "
        "timed call",
    ),
]


def _near(times: list[float], expected: list[float], share: float, ms: float) -> bool:
    return len(times) == len(expected) and all(
        abs(t - e) <= ms + share * abs(e) for t, e in zip(times, expected, strict=True)
    )


def _draw_amounts(draw, warmup: int, repeats: int) -> Amounts:
    """Amounts that lie apart from one another, and of which no two mistakes make the same."""
    while True:
        work_ms = [
            5.0 * 1.3**i * draw.uniform(0.97, 1.03) for i in range(warmup + repeats)
        ]  # a ladder: every two at least a fifth apart
        draw.shuffle(work_ms)
        host_ms = [t * draw.uniform(0.2, 0.4) for t in work_ms]
        amounts = Amounts(warmup, work_ms, host_ms)
        outcomes = [amounts.timed_ms, *(made(amounts) for made, _ in MISTAKES)]
        pairs = [(a, b) for i, a in enumerate(outcomes) for b in outcomes[i + 1 :]]
        if not any(_near(a, b, 3 * NAMED_SHARE, 3 * NAMED_MS) for a, b in pairs):
            return amounts


def _number_of_calls(seen: dict, warmup: int, repeats: int) -> str:
    """What is wrong with how often the function was called, or nothing."""
    calls, expected = seen["calls"], warmup + repeats
    if calls == expected:
        return ""
    said = (
        f"with warmup={warmup} and repeats={repeats} the function was called {calls} times, "
        f"not {expected}"
    )
    if warmup and calls == repeats:
        return f"{said}: there is no warm-up"
    if abs(calls - expected) == 1:
        return f"{said}: that is one call too {'few' if calls < expected else 'many'}"
    return said


def _wrong_kind(returned, amounts: Amounts) -> str:  # noqa: PLR0911
    """What is wrong with the type of the answer or its length, or nothing."""
    wanted = f"return a list of {amounts.repeats} Python floats, one for each timed call"
    if returned is None:
        return f"cuda_time returned None: {wanted}"
    if type(returned) in (int, float):
        return f"cuda_time returned one number, {returned:.4g}: {wanted}, not their mean or total"
    if type(returned) is not list:
        kind = "a tensor" if hasattr(returned, "shape") else _named(returned)
        return f"cuda_time returned {kind}: {wanted}"
    for i, time in enumerate(returned):
        if type(time) not in (int, float):
            kind = "a tensor" if hasattr(time, "shape") else _named(time)
            return f"time {i} in cuda_time's list is {kind}: {wanted}"
        if not math.isfinite(time):
            return f"time {i} in cuda_time's list is {time}: {wanted}"
    if len(returned) == amounts.repeats:
        return ""
    if len(returned) == len(amounts.work_ms) and amounts.warmup:
        return f"cuda_time returned {len(returned)} times: they include the warm-up calls; {wanted}"
    return f"cuda_time returned a list of {len(returned)}: {wanted}"


def _named(value) -> str:
    return str(value) if type(value).__name__ == "Opaque" else f"a {type(value).__name__}"


def _diagnosis(times: list[float], amounts: Amounts) -> str:
    """The mistake that these times show, or what was expected instead."""
    for made, said in MISTAKES:
        if _near(times, made(amounts), NAMED_SHARE, NAMED_MS):
            return said
    in_ms = [t * 1e3 for t in times]
    seconds = (
        "these times are in seconds; cuda_time returns milliseconds, as Event.elapsed_time does"
    )
    if _near(in_ms, amounts.timed_ms, NAMED_SHARE, NAMED_MS):
        return seconds
    for made, said in MISTAKES:
        if _near(in_ms, made(amounts), NAMED_SHARE, NAMED_MS):
            return f"{said}. Besides, they are in seconds, not in milliseconds"
    if max(map(abs, times)) < 0.1 * min(amounts.host_ms):
        return (
            f"the largest of these times is {max(times):.4f} ms: there is no work between the two "
            "events. Record one before the call and one after it"
        )
    i = max(range(amounts.repeats), key=lambda i: abs(times[i] - amounts.timed_ms[i]))
    return (
        f"timed call {i} of {amounts.repeats} kept the GPU busy for {amounts.timed_ms[i]:.2f} ms, "
        f"and cuda_time says {times[i]:.2f} ms. Record a CUDA event just before each timed call "
        "and one just after it, on the current stream"
    )


@number("C1.1")
@weight(7)
def test_each_call_is_timed_alone(probe, draw, tier):
    """Each time is the GPU time of its own call: in ms, in order, without warm-up or host time."""
    amounts = _draw_amounts(draw, warmup=draw.randint(2, 3), repeats=draw.randint(5, 6))
    seen = amounts.observed(probe)
    wrong = _wrong_kind(seen["returned"], amounts)
    assert not wrong, wrong
    wrong = _number_of_calls(seen, amounts.warmup, amounts.repeats)
    assert not wrong, wrong
    times = seen["returned"]
    right = _near(times, amounts.timed_ms, TOLERANCE_SHARE[tier], TOLERANCE_MS[tier])
    assert right, _diagnosis(times, amounts)


@pytest.mark.parametrize("shape", ["several", "one call, no warm-up"])
@number("C1.2")
@weight(3)
def test_function_is_called_as_often_as_asked(probe, draw, shape):
    """The function is called warmup + repeats times, without arguments."""
    several = shape == "several"
    warmup, repeats = (draw.randint(2, 4), draw.randint(2, 5)) if several else (0, 1)
    amounts = Amounts(warmup, [1.0] * (warmup + repeats), [0.1] * (warmup + repeats))
    seen = amounts.observed(probe)
    wrong = _number_of_calls(seen, warmup, repeats)
    assert not wrong, wrong
    assert not seen["arguments"], (
        f"the function was called with arguments ({', '.join(seen['arguments'][:3])}): call it "
        "with none"
    )
    wrong = _wrong_kind(seen["returned"], amounts)
    assert not wrong, wrong


@number("C1.3")
@weight(3)
def test_timed_calls_follow_without_waiting(probe, draw):
    """The host waits for the GPU after the last timed call, and not between them."""
    amounts = _draw_amounts(draw, warmup=draw.randint(2, 3), repeats=draw.randint(4, 6))
    seen = amounts.observed(probe)
    wrong = _number_of_calls(seen, amounts.warmup, amounts.repeats)
    assert not wrong, wrong
    first, last = amounts.warmup, len(amounts.work_ms) - 1
    waits = sum(seen["waits"][first:last])
    assert not waits, (
        f"the host synchronizes with the GPU {waits} times between the timed calls: this empties "
        "the GPU's queue and disturbs what is measured. Enqueue all the calls, synchronize once, "
        "and read the events then"
    )
    # Whoever waits by asking an event again and again synchronizes too, without saying so. The
    # host's own part of a call is less than half of the call's work.
    began_ms = seen["began_ms"]
    slow = sum(began_ms[k + 1] - began_ms[k] > 0.9 * amounts.work_ms[k] for k in range(first, last))
    assert slow <= (last - first) / 2, (
        "the host waits after a timed call until the GPU has finished it, and only then makes the "
        "next call: enqueue all the calls first, and wait after the last one"
    )
    assert seen["ended_ms"] - began_ms[last] > 0.9 * amounts.work_ms[last], (
        "cuda_time returns before the GPU has finished the last call, so its time cannot be known "
        "yet: synchronize once, after the last call"
    )
