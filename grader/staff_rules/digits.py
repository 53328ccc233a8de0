"""What the digits of a number tell about where it comes from."""

from __future__ import annotations

import numpy as np
import pandas as pd

from shared.artifacts import table
from shared.gpus import COURSE_GPU

from ..rules.experiment import Results
from .note import Note
from .reading import KINDS, at_least, gpu_names, measured, resolution, six_digits

# CUDA events are stamped in ticks of 32 ns on the course's GPU (an H200, driver 580): every one of
# the 270 times of a measured set that has digits enough to show it is a multiple.  The median of
# an even number of calls, as the scripts take it, lies halfway between two ticks as often as not.
TICK_NS = 32
MEDIAN_NS = TICK_NS // 2
UNLIKELY = 1e-4  # what no honest set may do by chance: there are some fifteen such rules

TIMED_CALLS = {  # medians of cuda_time
    "gemm": ["ms"], "ops": ["ms"], "regimes": ["ms"], "micro_batches": ["step_ms"],
    "sweep": ["step_ms"],
}  # fmt: skip
STAGES = {"sweep": KINDS, "stages": KINDS[:3], "stages_rc": KINDS[:3]}  # sums of stage_times


def timer_tick(results: Results) -> list[Note]:
    """Times of CUDA events are multiples of the GPU timer's tick; invented ones are not.

    Below 1 ms six digits tell every nanosecond, and a number that did not come from the timer is a
    multiple of 16 ns once in sixteen times: an edited, scaled, averaged or interpolated cell gives
    itself away.  A single cell off the grid is noted.  The tick is known for the course's GPU; on
    another one it is only assumed where most of the table keeps it.

    Honest cause: another driver stamps more finely, or the student's `cuda_time` does not return
    the events' own times.
    """
    found = []
    for name, columns in TIMED_CALLS.items():
        frame = measured(results, name)
        if frame is None:
            continue
        ns = _values(frame, columns) * 1e6
        ns = ns[ns < 1e6]
        off = ~_on_grid(ns, MEDIAN_NS, slack_ns=0)
        known = gpu_names(results, name) == {COURSE_GPU.name} or off.sum() < 0.4 * len(ns)
        if off.any() and known and (len(ns) >= 8 or off.sum() >= 2):
            what = "times are not multiples of the GPU timer's tick: not as an event gave them"
            figures = {"off": int(off.sum()), "of": len(ns), "tick in ns": MEDIAN_NS}
            found.append(Note("timer_tick", table(name).file, what, figures))
    return found


def stages_tick(results: Results) -> list[Note]:
    """The same for `stage_times`, whose times are also written only to 10 ns.

    A time between 1 and 10 ms lies within 8 ns of a multiple of the tick for one number in two, so
    it takes many cells.  Two things are noted: a table that keeps the tick and some cells of it
    that do not (edited), and a table that keeps it no better than chance does.

    Honest cause of the second: a `stage_times` that takes means where medians are asked for.
    """
    found = []
    for name, columns in STAGES.items():
        frame = measured(results, name)
        if frame is None:
            continue
        ns = _values(frame, columns) * 1e6
        ns = ns[ns < 1e7]
        if len(ns) < 12:
            continue
        on, n = int(_on_grid(ns, TICK_NS, slack_ns=3).sum()), len(ns)
        keeps = at_least(on, n, 0.5) < UNLIKELY
        kept_by_chance = on < 0.75 * n and n >= 30 and gpu_names(results, name) == {COURSE_GPU.name}
        figures = {"off": n - on, "of": n, "tick in ns": TICK_NS}
        if keeps and on < n:
            what = "most times are multiples of the GPU timer's tick, and some are not: changed?"
        elif kept_by_chance:
            what = "times are multiples of the GPU timer's tick no more often than by chance"
        else:
            continue
        found.append(Note("stages_tick", table(name).file, what, figures))
    return found


def _values(frame: pd.DataFrame, columns: list[str]) -> np.ndarray:
    """What was measured, in one row: without blanks and the zeros of stages not recomputed."""
    values = frame[list(columns)].to_numpy(float).ravel()
    return values[np.isfinite(values) & (values > 0)]


def _on_grid(ns: np.ndarray, tick_ns: int, slack_ns: float) -> np.ndarray:
    # an event's time is a float32 of milliseconds, hence the last term
    allowed = resolution(ns) / 2 * 1.01 + slack_ns + ns * 2.0**-23
    return np.abs(ns - tick_ns * np.round(ns / tick_ns)) <= allowed


WRITTEN = {  # measured columns that carry six digits
    "gemm": ["ms"], "gemm_sustained": ["tflops"], "ops": ["ms"], "sweep": ["step_ms", *KINDS],
    "micro_batches": ["step_ms"], "stages": KINDS[:3], "stages_rc": KINDS[:3],
}  # fmt: skip


def rounded(results: Results) -> list[Note]:
    """Our scripts write six significant digits; a column with three or fewer was typed or rounded.

    One measured time in a hundred ends in three zeros by chance, one in twenty-five near 0.02 ms,
    where the timer's tick leaves few digits.  Half of at least eight is out of reach.  More than
    six digits are noted as well: then something else wrote the file.

    Honest cause: the file went through a spreadsheet.
    """
    found = []
    for name, columns in WRITTEN.items():
        frame = measured(results, name)
        if frame is None:
            continue
        values = _values(frame, columns)
        few = sum(float(f"{v:.3g}") == v for v in values)
        many = int((six_digits(values) != values).sum())
        if len(values) >= 8 and few >= 0.5 * len(values):
            what = "most values have three digits or fewer: rounded"
            found.append(Note("rounded", table(name).file, what, {"of": len(values), "n": few}))
        elif many >= 2:
            what = "values have more digits than our scripts write"
            found.append(Note("rounded", table(name).file, what, {"of": len(values), "n": many}))
    return found


def last_digits(results: Results) -> list[Note]:
    """People who invent numbers end them in 0 and 5, or avoid that; timers do not care.

    The sixth digit of times above 10 ms, over all files: there the tick leaves no trace, and all
    ten digits are equally likely.  Two-sided binomial test of 0 and 5, and of the commonest digit.

    Honest cause: none but chance, once in a million.
    """
    digits: list[int] = []
    for name, columns in WRITTEN.items():
        frame = measured(results, name)
        if frame is not None:
            values = _values(frame.drop_duplicates(), columns)
            values = values[values >= 10]
            digits += [int(d) % 10 for d in np.round(values / resolution(values))]
    n = len(digits)
    if n < 30:
        return []
    ends = sum(d in (0, 5) for d in digits)
    often = max(np.bincount(digits, minlength=10))
    chance = min(at_least(ends, n, 0.2), at_least(n - ends, n, 0.8)) * 2
    chance = min(chance, at_least(often, n, 0.1) * 10)
    if chance >= UNLIKELY / 100:  # several tests in one, on every hand-in
        return []
    what = "the last digits of the times are not evenly spread"
    figures = {"end in 0 or 5": ends, "commonest": int(often), "of": n, "by chance": chance}
    return [Note("last_digits", "all files", what, figures)]


def repeated_values(results: Results) -> list[Note]:
    """Two configurations do not take the same time to six digits, again and again.

    Configurations of equal token count are within 1% of each other, so a pair coincides once in a
    thousand times; three coincidences, or one row with all its times, are noted.  A line that is
    there twice in full (two files joined) is no repetition.

    Honest cause: none but chance.
    """
    found = []
    for name, columns in (
        ("sweep", ["step_ms", "forward_ms", "backward_ms"]),
        ("micro_batches", ["step_ms"]),
        ("gemm", ["ms"]),
        ("ops", ["ms"]),
    ):
        frame = measured(results, name)
        if frame is None:
            continue
        frame = frame.drop_duplicates()
        rows = frame[columns].where(frame[columns] >= 1)  # below, the tick alone makes some equal
        repeats = sum(int(rows[c].dropna().duplicated().sum()) for c in columns)
        whole = int(rows.dropna().duplicated().sum()) if len(columns) > 1 else 0
        if repeats >= 3 or whole:
            what = "the same times stand at different configurations"
            figures = {"repeated": repeats, "whole rows": whole}
            found.append(Note("repeated_values", table(name).file, what, figures))
    return found


DERIVED = (  # table, column, the time that it comes from, what is divided by it
    ("gemm", "tflops", "ms", lambda f: 2.0 * f["m"] * f["k"] * f["n"] / 1e9),
    ("ops", "gbs", "ms", lambda f: f["bytes_moved"] / 1e6),
    ("micro_batches", "tokens_per_s", "step_ms",
     lambda f: f["global_batch_size"] * f["seqlen"] * 1e3),
    ("sweep", "tokens_per_s", "step_ms", lambda f: f["micro_batch_size"] * f["seqlen"] * 1e3),
)  # fmt: skip


def derived_after_rounding(results: Results) -> list[Note]:
    """Our scripts derive columns from the time as measured, not from the six digits they write.

    So tokens/s computed again from the file differ in the last digit in a good third of the rows.
    Where all rows agree to the last digit, the column was computed from the file: after a change,
    for instance.  The chance of agreement is worked out for every row (the time lay anywhere
    within its last digit), over all files; times below 1 ms are exact and say nothing.

    Honest cause: chance, once in ten thousand; or a script of the student's own that made the file.
    """
    chance, rows, files = 1.0, 0, []
    for name, column, time, numerator in DERIVED:
        frame = measured(results, name)
        if frame is None:
            continue
        frame = frame[frame[time] >= 1]
        ms, given = frame[time].to_numpy(float), frame[column].to_numpy(float)
        above = numerator(frame).to_numpy(float)
        if len(ms) == 0 or (six_digits(above / ms) != given).any():
            continue
        # the interval of the unrounded quotient against that of the digits written
        half_ms, half = resolution(ms) / 2, resolution(given) / 2
        low = np.maximum(above / (ms + half_ms), given - half)
        high = np.minimum(above / (ms - half_ms), given + half)
        span = above / (ms - half_ms) - above / (ms + half_ms)
        chance *= float(np.prod(np.clip((high - low) / span, 0, 1)))
        rows, files = rows + len(ms), [*files, table(name).file]
    if chance >= UNLIKELY:
        return []
    what = (
        "rates follow from the rounded times to the last digit: computed from the file afterwards"
    )
    return [
        Note("derived_after_rounding", ", ".join(files), what, {"rows": rows, "chance": chance})
    ]
