"""Numbers from a formula instead of a GPU."""

from __future__ import annotations

import numpy as np
import pandas as pd

from shared.gpus import COURSE_GPU

from .forge import KINDS, Folder

LAUNCH_MS = 0.006


def _roofline_ms(name: str, frame: pd.DataFrame) -> np.ndarray:
    if name == "ops":
        return frame["bytes_moved"].to_numpy(float) / COURSE_GPU.peak_gbs / 1e6
    m, k, n = (frame[c].to_numpy(float) for c in "mkn")
    compute = 2 * m * k * n / COURSE_GPU.peak_tflops / 1e9
    return np.maximum(compute, 2 * (m * k + k * n + m * n) / COURSE_GPU.peak_gbs / 1e6)


def _replace(folder: Folder, ms, names=("gemm", "ops")) -> None:
    for name in names:
        folder.change(name, lambda f, name=name: f.assign(ms=ms(_roofline_ms(name, f))))


def roofline_formula(folder: Folder, other: Folder) -> None:
    """GEMMs and operations take exactly what the data sheet's roofline says."""
    _replace(folder, lambda ms: ms)


def roofline_times_efficiency(folder: Folder, other: Folder) -> None:
    """The roofline at 72%, and a launch cost."""
    _replace(folder, lambda ms: LAUNCH_MS + ms / 0.72)


def formula_with_gaussian_noise(folder: Folder, other: Folder) -> None:
    """The same with 3% of Gaussian noise, alike for all sizes."""
    draw = folder.draw
    _replace(folder, lambda ms: (LAUNCH_MS + ms / 0.72) * np.exp(draw.normal(0, 0.03, len(ms))))


def sorted_noise(folder: Folder, other: Folder) -> None:
    """The same with 5%, and sorted, so that more rows always take longer."""

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        noise = np.exp(folder.draw.normal(0, 0.05, len(frame)))
        ms = pd.Series((LAUNCH_MS + _roofline_ms("gemm", frame) / 0.72) * noise, frame.index)
        return frame.assign(ms=ms.groupby(frame["shape"]).transform(np.sort))

    folder.change("gemm", change)


def linear_in_tokens(folder: Folder, other: Folder) -> None:
    """The sweep from a line in tokens for every number of layers, with 1.5% of noise."""
    draw = folder.draw

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        tokens = (frame["micro_batch_size"] * frame["seqlen"]).to_numpy(float)
        layers, again = frame["layers"].to_numpy(float), (frame["recompute"] == "yes").to_numpy()
        noise = [np.exp(draw.normal(0, 0.015, len(frame))) for _ in KINDS]
        frame["forward_ms"] = (0.4 + 0.4 * layers + tokens * (2.6e-4 + 5.2e-4 * layers)) * noise[0]
        frame["backward_ms"] = 1.8 * frame["forward_ms"] * noise[1]
        frame["recompute_ms"] = np.where(again, 0.75 * frame["forward_ms"] * noise[2], 0)
        frame["optimizer_ms"] = (1.4 + 2.2 * layers) * noise[3]
        total = frame[list(KINDS)].sum(axis=1)
        frame["step_ms"] = total * np.exp(draw.normal(0, 0.01, len(frame)))
        return frame

    folder.change("sweep", change)


def sustained_curve(folder: Folder, other: Folder) -> None:
    """The sustained run drawn as a decay to a level, with noise, at even intervals."""
    draw = folder.draw

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        n, first, last = len(frame), frame["tflops"].iloc[0], frame["tflops"].iloc[-20:].median()
        frame["seconds"] = np.linspace(0.025, frame["seconds"].iloc[-1], n)
        decay = np.exp(-frame["seconds"] / 0.1)
        frame["tflops"] = (last + (first - last) * decay) * np.exp(draw.normal(0, 0.005, n))
        return frame

    folder.change("gemm_sustained", change)
