"""Measured numbers, changed afterwards."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .forge import KINDS, TIMES, Folder, derived


def scaled_from_another_gpu(folder: Folder, other: Folder) -> None:
    """Everything was measured on a slower GPU, and divided by the ratio of the data sheets."""
    factor = float(folder.draw.uniform(0.7, 0.95))
    folder.scale(lambda ms: factor)
    folder.change("stages", lambda f: f.assign(optimizer_ms=f["optimizer_ms"] * factor))
    folder.change("stages_rc", lambda f: f.assign(optimizer_ms=f["optimizer_ms"] * factor))
    folder.scale_sustained(factor)
    folder.scale_recordings(lambda: factor)


def interpolated_gemms(folder: Folder, other: Folder) -> None:
    """Every other M was measured; those between are geometric means of their neighbours."""

    def change(frame: pd.DataFrame) -> None:
        for _, rows in frame.groupby("shape"):
            ms = rows["ms"].to_numpy(float).copy()
            ms[1:-1:2] = np.sqrt(ms[:-2:2] * ms[2::2])
            frame.loc[rows.index, "ms"] = ms

    folder.change("gemm", change)


def interpolated_sweep(folder: Folder, other: Folder) -> None:
    """Every other token count of the sweep was measured; the rest lies on lines between them."""

    def change(frame: pd.DataFrame) -> None:
        frame["tokens"] = frame["micro_batch_size"] * frame["seqlen"]
        for _, rows in frame.groupby(["layers", "recompute"]):
            rows = rows.sort_values(["tokens", "seqlen"])
            known = np.arange(len(rows)) % 2 == 0
            known[-1] = True
            for column in ("step_ms", *KINDS):
                line = np.interp(rows["tokens"], rows["tokens"][known], rows[column][known])
                frame.loc[rows.index[~known], column] = line[~known]
        del frame["tokens"]

    folder.change("sweep", change)


def edited_steps(folder: Folder, other: Folder) -> None:
    """Four steps of the sweep, their passes too, were made 20% faster."""

    def change(frame: pd.DataFrame) -> None:
        rows = folder.draw.choice(frame.index, 4, replace=False)
        for column in ("forward_ms", "backward_ms", "recompute_ms"):
            frame.loc[rows, column] *= 0.76
        before = frame.loc[rows, "step_ms"]
        frame.loc[rows, "step_ms"] = before - 0.24 * (before - frame.loc[rows, "optimizer_ms"])

    folder.change("sweep", change)


def edited_gemms(folder: Folder, other: Folder) -> None:
    """Three GEMMs that came out slow were made 20% faster."""

    def change(frame: pd.DataFrame) -> None:
        rows = folder.draw.choice(frame.index[frame["ms"] < 1], 3, replace=False)
        frame.loc[rows, "ms"] *= 0.8

    folder.change("gemm", change)


def derived_again(folder: Folder, other: Folder) -> None:
    """Large steps were made 5% faster, and all rates computed again from the file."""
    for name, column in (("sweep", "step_ms"), ("micro_batches", "step_ms")):
        folder.change(
            name,
            lambda f, c=column: f.assign(**{c: np.where(f[c] > 30, (0.95 * f[c]).round(4), f[c])}),
        )
        if folder.has(name):
            frame = folder.frame(name)  # what was written, rounded
            folder.write(name, derived(name, frame), derive=False)


def forged_recompute(folder: Folder, other: Folder) -> None:
    """Nothing was run with recomputation: those rows are the others, times a factor."""
    recompute = float(folder.draw.uniform(0.68, 0.78))  # of the forward pass

    def sweep(frame: pd.DataFrame) -> None:
        keys = ["layers", "micro_batch_size", "seqlen"]
        plain = frame[frame["recompute"] == "no"].drop_duplicates(keys).set_index(keys)
        for line, row in frame[frame["recompute"] == "yes"].iterrows():
            if (source := tuple(row[keys])) in plain.index:
                for column in KINDS:
                    frame.loc[line, column] = plain.loc[source, column]
                more = recompute * plain.loc[source, "forward_ms"]
                frame.loc[line, "recompute_ms"] = more
                frame.loc[line, "step_ms"] = plain.loc[source, "step_ms"] + more

    def micro_batches(frame: pd.DataFrame) -> None:
        plain = frame[frame["recompute"] == "no"].set_index("micro_batch_size")["step_ms"]
        again = frame["recompute"] == "yes"
        frame.loc[again, "step_ms"] = frame.loc[again, "micro_batch_size"].map(plain) * 1.27

    def stages(frame: pd.DataFrame) -> None:
        plain = folder.frame("stages").set_index("stage")
        for column in ("forward_ms", "backward_ms"):
            frame[column] = frame["stage"].map(plain[column])
        layers = frame["stage"].str.startswith("layers.")
        frame.loc[layers, "recompute_ms"] = 0.98 * frame.loc[layers, "forward_ms"]

    folder.change("sweep", sweep)
    folder.change("micro_batches", micro_batches)
    if folder.has("stages"):
        folder.change("stages_rc", stages)


def _round(folder: Folder, digits: int) -> None:
    for name, columns in TIMES.items():
        folder.change(
            name,
            lambda f, columns=columns: f.assign(
                **{c: f[c].map(lambda v: float(f"{v:.{digits}g}")) for c in columns}
            ),
        )


def rounded_to_two_digits(folder: Folder, other: Folder) -> None:
    """Read off a plot, or typed from the printed table."""
    _round(folder, 2)


def rounded_to_three_digits(folder: Folder, other: Folder) -> None:
    """The same, with one digit more."""
    _round(folder, 3)


def smoothed(folder: Folder, other: Folder) -> None:
    """A moving average over M and over size, because the plot was ragged."""
    for name, key in (("gemm", "shape"), ("ops", "op")):
        folder.change(
            name,
            lambda f, key=key: f.assign(
                ms=np.exp(
                    np.log(f["ms"]).groupby(f[key]).transform(
                        lambda g: g.rolling(3, center=True, min_periods=1).mean()
                    )
                )
            ),
        )  # fmt: skip


def recording_made_faster(folder: Folder, other: Folder) -> None:
    """The summaries of the recordings were made 12% faster; their traces are the old ones."""
    for name in ("train", "fwd_large", "fwd_small"):
        folder.change(
            f"{name}_ranges", lambda f: f.assign(gpu_ms_per_step=f.gpu_ms_per_step * 0.88)
        )
