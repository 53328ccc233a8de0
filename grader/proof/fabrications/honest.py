"""Further honest sets, drawn from a measured one: to bound how often an honest one is noted.

Times keep what a measurement has (the timer's tick, unrounded derived columns, equal work per
group) and get noise by regime, on top of the noise that the measured set has already:

    launch-bound   a factor for the machine's CPU (25%) and 8% per cell; one cell in ten 30% slower
    between        3% per cell
    large          1% for the machine and 1% per cell

The drawn sets share the structure of the set they come from (which kernel a shape gets), so they
bound what noise does to a rule, not what another machine would do.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .forge import TIMES, Folder, copy

TICK_MS = 32e-6  # of the H200's timer


def ticks(ms: np.ndarray, even: bool) -> np.ndarray:
    """Times as the timer gives them; `even`: the median of an even number of calls."""
    step = TICK_MS / 2 if even else TICK_MS
    return np.where(ms > 0, np.maximum(1, np.round(ms / step)) * step, ms)


def another_occasion(source: Path, target: Path, seed: int, quiet: bool = False) -> Folder:
    """A set as the same scripts would have measured it some other day.

    quiet: with a third of the noise per cell, as on a machine with nothing else to do.
    """
    folder = copy(source, target, seed)
    draw, calm = folder.draw, 0.3 if quiet else 1.0
    cpu, gpu = np.exp(draw.normal(0, 0.25)), np.exp(draw.normal(0, 0.01))

    def noise(regime: np.ndarray, sigma: tuple[float, float, float]) -> np.ndarray:
        """One factor per cell; regime 0 launch-bound, 1 between, 2 large."""
        factor = np.exp(draw.normal(0, calm * np.array(sigma)[regime]))
        slow = (regime == 0) & (draw.random(len(regime)) < 0.1)
        return factor * np.where(slow, 1 + 0.3 * draw.random(len(regime)), 1)

    machine = np.array([cpu, cpu**0.3, gpu])
    for name in ("gemm", "ops", "regimes"):
        if folder.has(name):
            frame = folder.frame(name)
            ms = frame["ms"].to_numpy(float)
            regime = np.digitize(ms, [0.05, 0.2])
            factor = machine[regime] * noise(regime, (0.04, 0.02, 0.006))
            frame["ms"] = ticks(ms * factor, even=True)
            folder.write(name, frame)
    for name in ("micro_batches", "stages", "stages_rc", "sweep"):
        if not folder.has(name):
            continue
        frame = folder.frame(name)
        tokens = frame["micro_batch_size"] * frame["seqlen"]
        regime = np.digitize(tokens, [1025, 4097])
        cell = machine[regime] * noise(regime, (0.08, 0.03, 0.007))
        for column in TIMES[name]:
            large = column == "optimizer_ms"  # in every step
            own = noise(np.full(len(frame), 2) if large else regime, (0.02, 0.01, 0.005))
            ms = frame[column].to_numpy(float) * own * (gpu if large else cell)
            frame[column] = ticks(ms, even=column == "step_ms")
        if name in ("stages", "stages_rc"):
            step = frame["stage"] == "step"
            frame.loc[step, "optimizer_ms"] *= np.exp(draw.normal(0, 0.01))
        folder.write(name, frame)
    if folder.has("gemm_sustained"):
        n = len(folder.frame("gemm_sustained"))
        folder.scale_sustained(gpu * np.exp(draw.normal(0, 0.002, n)))
    folder.scale_recordings(lambda: float(np.exp(draw.normal(0, 0.006))))
    folder.rename_runs()
    return folder
