"""Compares numbers that have one right value, and names the mistake when it is a known one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from torch import Tensor

from .suite.wire import Opaque

BEYOND = 10**300  # an int from here on is no float, and nobody's answer
SAME = 1e-9  # relative: floating-point arithmetic in any order stays far below it


def checked_number(value, call: str) -> float:
    """`value`, if it is a finite number. AssertionError with words for the student otherwise.

    call: what returned it, such as "gemm_flops(16, 2048, 2048)".
    """
    if type(value) is int and abs(value) >= BEYOND:
        raise AssertionError(f"{call} returned a number beyond all bounds")
    if type(value) in (int, float):
        if math.isfinite(value):
            return value
        raise AssertionError(f"{call} returned {value}, which is not a finite number")
    if value is None:
        raise AssertionError(f"{call} returned None: is there a `return` on every path?")
    raise AssertionError(f"{call} returned {kind_of(value)}; it must return a number")


def kind_of(value) -> str:
    """What a value that came back is, in words."""
    if isinstance(value, Opaque):
        return str(value)
    if isinstance(value, Tensor):
        return "a tensor"
    names = {bool: "a bool", str: "a string", list: "several values", dict: "a dict"}
    return names.get(type(value), f"a value of type {type(value).__name__}")


def same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=SAME, abs_tol=0.0)


def check_numbers(
    calls: Sequence[str],
    seen: Sequence,
    expected: Sequence[float],
    mistakes: Iterable[tuple[str, Callable[[int], float]]] = (),
) -> None:
    """Asserts that every number seen is the one expected.

    A mistake is named when it gives what was seen in every case. `mistakes` are pairs of words for
    the student and a function from the number of a case to what the mistake makes of it.
    """
    assert type(seen) is list and len(seen) == len(calls), "the probe's answer is incomplete"
    numbers = [checked_number(value, call) for value, call in zip(seen, calls, strict=True)]
    wrong = [i for i, (a, b) in enumerate(zip(numbers, expected, strict=True)) if not same(a, b)]
    if not wrong:
        return
    i = wrong[0]
    fact = f"{calls[i]} should be {shown(expected[i])}, got {shown(numbers[i])}"
    for words, otherwise in mistakes:
        if all(same(number, otherwise(k)) for k, number in enumerate(numbers)):
            raise AssertionError(f"{words} ({fact})")
    if len(wrong) < len(calls):
        fact += f"; {len(calls) - len(wrong)} of {len(calls)} cases are right"
    raise AssertionError(fact)


def shown(value: float) -> str:
    """A number as a reader compares it: whole ones in full, others to nine digits."""
    if isinstance(value, int) or (value == int(value) and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:.9g}"
