"""Numbers that follow a formula more closely than a GPU does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pandas as pd

from shared.artifacts import table

from ..rules.experiment import Results
from .digits import TICK_NS
from .note import Note
from .reading import CONFIGURATION, KINDS, at_least, measured, sweep

EXACT = 2e-4  # relative: what six digits and a division leave of a ratio that is a constant
MAX_GEMMS = 200  # an honest table has 80
TOO_CLOSE_GEMM = 0.05  # an H200's GEMMs: 0.11
# At least so many rows -> upper quartile of the distance, below which a formula made them.  Of 300
# random grids of so many rows, drawn from two honest sweeps, none came closer than 0.0043, 0.0175
# and 0.0136 (20 rows), or 0.0059, 0.029 and 0.0153 (24 rows).
TOO_CLOSE_STEP = {
    24: {"step_ms": 0.005, "forward_ms": 0.02, "backward_ms": 0.01},
    20: {"step_ms": 0.0035, "forward_ms": 0.012, "backward_ms": 0.008},
}


def roofline(results: Results) -> list[Note]:
    """GEMMs do not keep to a roofline: tiles, waves and kernels chosen by shape see to that.

    Fits launch cost, attainable FLOP/s and attainable bandwidth, as a sum and as a maximum.  Three
    rows in four of an honest table lie within 11% of the best fit; a formula with an efficiency and
    3% of noise keeps them within 4%.  Measurement noise only adds to the distance.

    Honest cause: a GPU, or a library, with much smoother kernels than those we have seen.
    """
    frame = measured(results, "gemm")
    if frame is None or len(frame) < 40:
        return []
    frame = frame.iloc[:MAX_GEMMS]
    m, k, n = (frame[c].to_numpy(float) for c in "mkn")
    ms = frame["ms"].to_numpy(float)
    distance = _distance(ms, 2 * m * k * n, 2 * (m * k + k * n + m * n))
    if distance >= TOO_CLOSE_GEMM:
        return []
    what = "three GEMMs in four keep to one roofline: made by a formula?"
    return [Note("roofline", "gemm.csv", what, {"within": distance, "at least": TOO_CLOSE_GEMM})]


def _distance(ms: np.ndarray, flops: np.ndarray, nbytes: np.ndarray) -> float:
    """Upper quartile of |log(time / fit)| for the best launch cost, FLOP/s and bandwidth."""
    # the rates of the fastest rows are the upper ends of what can be attained
    compute = flops / (flops / ms).max() * np.geomspace(1, 2.5, 24)[:, None]
    memory = nbytes / (nbytes / ms).max() * np.geomspace(0.5, 2.5, 32)[:, None]
    busy = np.maximum(compute[:, None, :], memory[None, :, :])
    best = np.inf
    for launch in ms.min() * np.array([0, 0.05, 0.1, 0.25, 0.5, 0.7, 0.85, 0.95, 1, 1.05]):
        for fit in (launch + busy, np.maximum(launch, busy)):
            error = np.abs(np.log(ms / fit))
            at = int(0.75 * len(ms))
            best = min(best, np.partition(error, at, axis=-1)[..., at].min())
    return float(best)


def linear_steps(results: Results) -> list[Note]:
    """Step times do not follow one formula in tokens and layers to a percent.

    Fits step, forward and backward times with layers, tokens and tokens x sequence length (least
    absolute deviations), for 20 rows or more with the same recomputation.  Three rows in four of an
    honest sweep lie within 1.6 to 4.6%, because experts change kernels with the number of their
    rows: most of all in the forward pass.

    Honest cause: a sweep over few, large, similar configurations.
    """
    frame = sweep(results)
    if frame is None:
        return []
    for _, rows in frame.groupby("recompute"):
        limits = next((c for n, c in TOO_CLOSE_STEP.items() if len(rows) >= n), {})
        design = _design(rows)
        distance = {c: _upper_quartile(design, rows[c].to_numpy(float)) for c in limits}
        if any(distance[c] < least for c, least in limits.items()):
            what = "three rows in four keep to one formula in tokens and layers: made by it?"
            return [Note("linear_steps", "sweep.csv", what, distance | {"rows": len(rows)})]
    return []


def _design(rows: pd.DataFrame) -> np.ndarray:
    """The columns of a linear model of a step: 1, tokens, tokens x seqlen, each times layers."""
    tokens, seqlen = rows["tokens"].to_numpy(float), rows["seqlen"].to_numpy(float)
    parts = [np.ones(len(rows)), tokens / 4096, tokens * seqlen / 4096**2]
    if rows["seqlen"].nunique() == 1:
        parts = parts[:2]
    if rows["layers"].nunique() > 1:
        parts += [p * rows["layers"].to_numpy(float) for p in parts]
    return np.stack(parts, axis=1)


def _upper_quartile(design: np.ndarray, ms: np.ndarray) -> float:
    """Of the distance from the fit, corrected for the number of parameters."""
    n, free = design.shape
    return float(np.quantile(np.abs(_deviations(design, ms)), 0.75) * np.sqrt(n / (n - free)))


def _deviations(design: np.ndarray, ms: np.ndarray) -> np.ndarray:
    """Relative residuals of the fit with the least absolute relative deviations.

    By iteratively reweighted least squares (Schlossmacher, JASA 68, 1973).
    """
    scaled, weight = design / ms[:, None], np.ones(len(ms))
    for _ in range(40):
        root = np.sqrt(weight)[:, None]
        solution = np.linalg.lstsq(scaled * root, root[:, 0], rcond=None)[0]
        residual = 1 - scaled @ solution
        weight = 1 / np.maximum(np.abs(residual), 1e-4)
    return residual


def out_of_line(results: Results) -> list[Note]:
    """A step far from what its neighbours in the sweep lead one to expect may have been edited.

    The fit of `linear_steps`, over steps of more than 1024 tokens without recomputation (on a slow
    host, the others are launch-bound and on no line at all).  Noted for steps of more than 4096
    tokens: two occasions differ by 6% there at worst and the formula itself is off by 4% (9% for a
    pass), so 16% is noted, and 21% for a pass.

    Honest cause: another job on the GPU during that one step, or a throttled clock.
    """
    frame = sweep(results)
    if frame is None:
        return []
    rows = frame[(frame["recompute"] == "no") & (frame["tokens"] > 1024)]
    design = _design(rows)
    if len(rows) < design.shape[1] + 6:
        return []
    large = (rows["tokens"] > 4096).to_numpy()
    for column, limit in (("step_ms", 0.16), ("forward_ms", 0.21), ("backward_ms", 0.21)):
        off = _deviations(design, rows[column].to_numpy(float))
        bad = large & (np.abs(off) > limit)
        if 0 < bad.sum() <= large.sum() / 2:
            figures = {"rows": int(bad.sum()), "off by": float(np.abs(off[bad]).max())}
            where = ", ".join(str(line) for line in rows.index[bad][:5])
            what = f"{column} of line {where} is far from its neighbours': edited?"
            return [Note("out_of_line", "sweep.csv", what, figures)]
    return []


def constant_ratio(results: Results) -> list[Note]:
    """Two things that were measured apart are not in the same ratio in every row, to four digits.

    Columns of a row (forward to backward, the step to the sum of its stages) and the same
    configuration with and without recomputation.  Honest ratios spread by 1 to 60%, and those of
    four equal layers by 1%.

    Honest cause: none that we know.
    """
    for file, name, all_ratios in _ratios(results):
        ratios = all_ratios[np.isfinite(all_ratios) & (all_ratios > 0)]
        if len(ratios) >= 4 and np.ptp(ratios) <= EXACT * ratios.mean():
            figures = {"ratio": float(ratios.mean()), "rows": len(ratios)}
            what = f"{name} are in one ratio throughout: one was computed from the other"
            return [Note("constant_ratio", file, what, figures)]
    return []


def _ratios(results: Results) -> Iterator[tuple[str, str, np.ndarray]]:
    """(file, what, one ratio per row), wherever a constant would be a surprise."""
    frame = sweep(results)
    if frame is not None:
        for recompute, rows in frame.groupby("recompute"):
            columns = ["step_ms", "stages_ms", *KINDS]
            if recompute == "no":
                columns.remove("recompute_ms")
            for a, b in combinations(columns, 2):
                if rows[a].nunique() > 2 and (rows[b] > 0).all():
                    yield "sweep.csv", f"{a} and {b}", (rows[a] / rows[b]).to_numpy(float)
        yield from _with_and_without(frame, "sweep", CONFIGURATION[:3], ["step_ms", *KINDS[:2]])
    frame = measured(results, "micro_batches")
    if frame is not None:
        yield from _with_and_without(frame, "micro_batches", ["micro_batch_size"], ["step_ms"])
    stages, again = measured(results, "stages"), measured(results, "stages_rc")
    if again is not None:
        layers = again[again["stage"].str.startswith("layers.")]
        for a in ("forward_ms", "backward_ms"):
            ratio = (layers["recompute_ms"] / layers[a].where(layers[a] > 0)).to_numpy(float)
            yield "stages_rc.csv", f"recompute_ms and {a}", ratio
        if stages is not None:
            both = stages.merge(again, on="stage", suffixes=("", "_rc"))
            both = both[both["stage"] != "step"]
            for a in ("forward_ms", "backward_ms"):
                ratio = (both[f"{a}_rc"] / both[a].where(both[a] > 0)).to_numpy(float)
                yield "stages.csv, stages_rc.csv", f"{a} of the two", ratio


def _with_and_without(
    frame: pd.DataFrame, name: str, keys: list[str], columns: list[str]
) -> Iterator[tuple[str, str, np.ndarray]]:
    halves = [
        frame[frame["recompute"] == r].drop_duplicates(keys).set_index(keys) for r in ("no", "yes")
    ]
    for column in columns:
        ratio = (halves[1][column] / halves[0][column]).dropna()
        yield table(name).file, f"{column} with and without recomputation", ratio.to_numpy(float)


def interpolated(results: Results) -> list[Note]:
    """A measured time is hardly ever the exact mean of its two neighbours.

    For every size between two others of gemm.csv and ops.csv: arithmetic or geometric mean, to
    0.05% or half a tick of the timer.  An honest table does so in one place in twenty, where all
    three are launch-bound; noted when one in ten could not explain it but once in ten thousand.

    Honest cause: none but chance.
    """
    found = []
    for name, key, size in (("gemm", "shape", "m"), ("ops", "op", "tensor_bytes")):
        frame = measured(results, name)
        if frame is None:
            continue
        hits = places = 0
        for _, rows in frame.groupby(key):
            ms = rows.sort_values(size).drop_duplicates(size)["ms"].to_numpy(float)
            near = np.maximum(5e-4 * ms[1:-1], TICK_NS / 2 * 1e-6)
            means = (ms[:-2] + ms[2:]) / 2, np.sqrt(ms[:-2] * ms[2:])
            hit = np.any([np.abs(ms[1:-1] - mean) <= near for mean in means], axis=0)
            # where all three are the same within 1%, the tick is too coarse to tell
            tells = np.abs(np.log(ms[:-2] / ms[2:])) > 0.01
            hits, places = hits + int((hit & tells).sum()), places + int(tells.sum())
        chance = at_least(hits, places, 0.1)
        if places >= 12 and chance < 1e-4:
            figures = {"means": hits, "of": places, "by chance": chance}
            what = "times are the means of their neighbours: interpolated?"
            found.append(Note("interpolated", table(name).file, what, figures))
    return found


def too_orderly(results: Results) -> list[Note]:
    """Where a GEMM takes no longer for twice the rows, noise decides which is slower.

    Pairs of neighbouring M whose times are within 15% and whose roofline times are far below them
    (launch-bound) or equal (the weight's bytes decide) go either way about equally often: in an
    H200's table 15 of 34 go down.  Noise that was sorted, or none, goes up only.  Noted when so few
    go down that a coin which falls so only one time in four would do it once in a thousand times.

    Honest cause: a machine so quiet that a few ns of real growth show.  We have not met one.
    """
    frame = measured(results, "gemm")
    if frame is None:
        return []
    pairs = down = 0
    for _, of_shape in frame.groupby("shape"):
        rows = of_shape.sort_values("m").drop_duplicates("m")
        ms, m = rows["ms"].to_numpy(float), rows["m"].to_numpy(float)
        # below 128 rows no shape of the model is compute-bound on any GPU we know
        flat = (m[1:] <= 128) & (m[1:] == 2 * m[:-1]) & (np.abs(np.log(ms[1:] / ms[:-1])) < 0.15)
        pairs += int(flat.sum())
        down += int((ms[1:] < ms[:-1])[flat].sum())
    if pairs < 16:
        return []
    chance = at_least(pairs - down, pairs, 0.75)
    if chance >= 1e-3:
        return []
    what = "times hardly ever fall where only noise decides: sorted, or a formula?"
    figures = {"fall": down, "of": pairs, "by chance": chance}
    return [Note("too_orderly", "gemm.csv", what, figures)]
