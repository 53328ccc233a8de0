"""The experiments' plots.  Each function takes a table and returns a matplotlib figure.

Colours are Okabe and Ito's, which people with colour-blindness can tell apart; every series has a
marker of its own as well.
"""

from collections.abc import Mapping

import matplotlib
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from shared.gpus import Gpu

matplotlib.use("Agg")  # no display on a GPU node

BLUE, VERMILION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
PURPLE, SKY, BLACK, GRAY = "#CC79A7", "#56B4E9", "#000000", "#767676"
SERIES = ((BLUE, "o"), (VERMILION, "s"), (GREEN, "^"), (PURPLE, "x"), (ORANGE, "v"), (SKY, "+"))


def roofline(gemm: pd.DataFrame, gpu: Gpu | None, title: str) -> Figure:
    """Measured GEMMs (gemm.csv) under the two bounds of `gpu`: TFLOP/s over intensity."""
    figure, axes = _figure(title)
    axes.set(xscale="log", yscale="log")
    for (shape, rows), (colour, marker) in zip(
        gemm.groupby("shape", sort=False), SERIES, strict=False
    ):
        label = f"{shape}, {rows.k.iloc[0]} × {rows.n.iloc[0]}"
        axes.plot(
            rows.intensity,
            rows.tflops,
            marker=marker,
            color=colour,
            label=label,
            lw=1,
            ms=6,
            mfc="none",
        )
    if gpu:
        low, high = gemm.intensity.min() / 1.5, gemm.intensity.max() * 1.5
        ridge = gpu.ridge_flops_per_byte
        ends = [low, min(max(ridge, low), high), high]
        bound = [min(gpu.peak_tflops, x * gpu.peak_gbs / 1e3) for x in ends]
        axes.plot(ends, bound, color=BLACK, lw=1.8, label="roofline")
        axes.axvline(ridge, color=GRAY, ls=":", lw=1)
        axes.text(ridge * 0.94, axes.get_ylim()[0] * 1.3, f"ridge point {ridge:.0f}",
                  color=GRAY, rotation=90, ha="right", va="bottom", fontsize=8)  # fmt: skip
        axes.text(high, gpu.peak_tflops * 1.08, f"{gpu.peak_tflops:,.0f} TFLOP/s",
                  ha="right", va="bottom", fontsize=9)  # fmt: skip
        axes.text(low, bound[0] * 2.6, f"{gpu.peak_gbs:,.0f} GB/s",
                  ha="left", va="bottom", fontsize=9)  # fmt: skip
        axes.set_ylim(top=gpu.peak_tflops * 2.2)
    axes.set(xlabel="arithmetic intensity (FLOP/byte)", ylabel="achieved TFLOP/s")
    _plain_ticks(axes)
    axes.legend(loc="lower right", fontsize=8)
    return figure


def bandwidth(ops: pd.DataFrame, gpu: Gpu | None, title: str) -> Figure:
    """Achieved bandwidth over the bytes moved (ops.csv), with `gpu`'s bandwidth and L2 cache."""
    figure, axes = _figure(title)
    for (op, rows), (colour, marker) in zip(ops.groupby("op", sort=False), SERIES, strict=False):
        axes.plot(
            rows.bytes_moved,
            rows.gbs,
            marker=marker,
            color=colour,
            label=op,
            lw=1.2,
            ms=6,
            mfc="none",
        )
    if gpu:
        axes.axhline(gpu.peak_gbs, color=BLACK, lw=1.8)
        axes.text(0.99, gpu.peak_gbs, f"memory bandwidth {gpu.peak_gbs:,.0f} GB/s ", fontsize=9,
                  transform=axes.get_yaxis_transform(), ha="right", va="bottom")  # fmt: skip
        l2_bytes = gpu.l2_mib * 2**20
        axes.axvline(l2_bytes, color=GRAY, ls=":", lw=1)
        axes.text(l2_bytes, 0.02, f" L2 cache {gpu.l2_mib:g} MiB", color=GRAY, fontsize=9,
                  transform=axes.get_xaxis_transform(), ha="left", va="bottom")  # fmt: skip
    axes.set(xscale="log", xlabel="bytes moved", ylabel="achieved bandwidth (GB/s)")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _size(x)))
    axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.05)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
    axes.legend(loc="lower right", fontsize=9)
    return figure


def memory(
    panels: Mapping[str, pd.DataFrame | str], kept_gib: float, state_gib: float, title: str
) -> Figure:
    """Memory over one step, one panel for each way of running it, all on one scale.

    Args:
        panels: caption -> a curve of `memory_curve.curve`, or why there is none.
        kept_gib: the weights with AdamW's moments, which are allocated all the time.
        state_gib: the same and one gradient per weight.
    """
    rows = (len(panels) + 1) // 2
    figure = Figure(figsize=(10, 3.1 * rows + 0.8), layout="constrained")
    figure.suptitle(title, fontsize=11)
    grid = figure.subplots(rows, 2, sharey=True, squeeze=False)
    levels = {kept_gib: "weights + AdamW's moments", state_gib: "the same + gradients"}
    tops = [curve.gib.max() for curve in panels.values() if not isinstance(curve, str)]
    for axes, (caption, curve) in zip(grid.flat, panels.items(), strict=False):
        axes.set_title(caption, fontsize=10)
        axes.grid(alpha=0.25)
        if isinstance(curve, str):
            axes.text(0.5, 0.5, curve, transform=axes.transAxes, ha="center", va="center")
            axes.set_xticks([])
        else:
            _memory_panel(axes, curve)
        for (level, what), colour in zip(levels.items(), (VERMILION, BLACK), strict=True):
            axes.axhline(level, color=colour, ls=":", lw=1.8, label=f"{what}: {level:.1f} GiB")
        axes.set_ylim(0, 1.15 * max([state_gib, *tops]))
    for axes in grid[:, 0]:
        axes.set_ylabel("memory allocated (GiB)")
    for axes in grid[-1]:
        axes.set_xlabel("allocations and frees since the step began")
    lines, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _memory_panel(axes, curve: pd.DataFrame) -> None:
    axes.fill_between(curve.event, curve.gib, step="post", color=BLUE, alpha=0.25, lw=0)
    axes.step(curve.event, curve.gib, where="post", color=BLUE, lw=1)
    peak = curve.loc[curve.gib.idxmax()]
    axes.plot(peak.event, peak.gib, "v", color=BLACK, ms=5)
    half = curve.event.min() + (curve.event.max() - curve.event.min()) / 2
    axes.annotate(
        f"peak {peak.gib:.1f} GiB",
        (peak.event, peak.gib),
        xytext=(6 if peak.event < half else -6, 4),
        textcoords="offset points",
        ha="left" if peak.event < half else "right",
        fontsize=9,
    )
    axes.set_xlim(curve.event.min(), curve.event.max())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))


def _figure(title: str):
    figure = Figure(figsize=(8.5, 5.6), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize=11)
    axes.grid(which="major", alpha=0.3)
    return figure, axes


def _plain_ticks(axes) -> None:
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _size(nbytes: float) -> str:
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if nbytes >= factor:
            return f"{nbytes / factor:g} {unit}"
    return f"{nbytes:g} B"
