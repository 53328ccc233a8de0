"""Predicted against measured: Coding 9's functions on the public configurations.

Writes predict.png, with bands for the errors that earn part of the credit and all of it, and names
the five worst configurations. Needs no GPU.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder that holds olmoe/ and a1/

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

matplotlib.use("Agg")  # no display on a GPU node

from a1 import session
from a1.perfmodel import predict_peak_gib, predict_step_ms
from a1.plots import BLUE, GRAY, GREEN, VERMILION
from olmoe.config import OlmoeConfig
from shared.gpus import COURSE_GPU

WORST = 5


class Quantity(NamedTuple):
    """One of the two things that are predicted."""

    column: str
    function: Callable
    what: str
    unit: str
    full: float  # relative error that earns all points
    half: float


QUANTITIES = (
    Quantity("step_ms", predict_step_ms, "step time", "ms", 0.15, 0.30),
    Quantity("peak_gib", predict_peak_gib, "peak memory", "GiB", 0.08, 0.20),
)


def default_truth() -> Path:
    """The table of the course's GPU: in a course repository, or in the staff's."""
    root = Path(__file__).resolve().parents[1]
    places = [
        root / "grade" / "a1_truth.csv",
        root.parent / "staff" / "truth" / COURSE_GPU.slug / "a1_truth.csv",
    ]
    return next((place for place in places if place.is_file()), places[0])


def predicted(table: pd.DataFrame, quantity: Quantity) -> pd.DataFrame:
    """The table's measured rows, with `measured`, `predicted` and the signed relative `error`.

    Raises session.Stop, naming the configuration, for a prediction that is no positive number.
    """
    rows = table.assign(measured=pd.to_numeric(table[quantity.column], errors="coerce"))
    rows = rows[rows.measured.notna()].copy()
    values = []
    for r in rows.itertuples():
        cfg = OlmoeConfig(n_layers=int(r.layers))
        size, seqlen = int(r.micro_batch_size), int(r.seqlen)
        value = float(quantity.function(cfg, size, seqlen, r.recompute == "yes"))
        if not (np.isfinite(value) and value > 0):
            raise session.Stop(f"{quantity.function.__name__} returned {value} for {called(r)}")
        values.append(value)
    rows["predicted"] = values
    rows["error"] = rows.predicted / rows.measured - 1
    return rows


def called(row) -> str:
    """A configuration in a few characters: "4L 8x2048 rc"."""
    recompute = " rc" if row.recompute == "yes" else ""
    return f"{row.layers}L {row.micro_batch_size}x{row.seqlen}{recompute}"


def is_graded(rows: pd.DataFrame, quantity: Quantity) -> pd.Series:
    """Which rows count: all of them for memory, for time those that repeat."""
    return rows.graded_on_time.eq("yes") | (quantity.column != "step_ms")


def summary(rows: pd.DataFrame, quantity: Quantity) -> str:
    """The shares within each limit, and the worst rows."""
    counted = rows[is_graded(rows, quantity)]
    size = counted.error.abs()
    within = "".join(
        f"{(size <= limit).mean():.0%} within {limit:.0%}, "
        for limit in (quantity.full, quantity.half)
        if len(counted)
    )
    median = f"median error {size.median():.1%} " if len(counted) else ""
    lines = [
        f"{quantity.function.__name__}: {within}{median}({len(counted)} graded configurations)."
        " The worst of all:"
    ]
    lines += [
        f"  {called(r):18} predicted {r.predicted:8.4g} {quantity.unit}, measured "
        f"{r.measured:8.4g} {quantity.unit}  {r.error:+.1%}"
        for r in worst(rows).itertuples()
    ]
    return "\n".join(lines)


def worst(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the largest errors, in either direction, largest first."""
    distance = np.log(rows.predicted / rows.measured).abs()
    return rows.loc[distance.sort_values(ascending=False).index[:WORST]]


def draw(axes, rows: pd.DataFrame, quantity: Quantity) -> None:
    """One panel: measured to the right, predicted upwards, both logarithmic."""
    both = pd.concat([rows.measured, rows.predicted])
    ends = np.array([both.min() / 1.4, both.max() * 1.4])
    for limit, shade in ((quantity.half, 0.12), (quantity.full, 0.25)):
        axes.fill_between(
            ends, ends * (1 - limit), ends * (1 + limit), color=GREEN, alpha=shade, lw=0,
            label=f"within {limit:.0%}",
        )  # fmt: skip
    axes.plot(ends, ends, color=GRAY, lw=1)
    graded = is_graded(rows, quantity)
    styles = [
        (rows[graded & rows.recompute.ne("yes")], BLUE, "o", BLUE, "plain"),
        (rows[graded & rows.recompute.eq("yes")], VERMILION, "s", VERMILION, "recomputed"),
        (rows[~graded], GRAY, "D", "none", "not graded: does not repeat"),
    ]
    for some, colour, marker, face, label in styles:
        if len(some):
            axes.plot(some.measured, some.predicted, marker, color=colour, mfc=face, ms=5,
                      label=label)  # fmt: skip
    named = worst(rows).sort_values("measured")
    for i, r in enumerate(named.itertuples()):  # in turns above left and below right of the line
        above = i % 2 == 1
        axes.annotate(
            f"{called(r)}, {r.error:+.0%}",
            (r.measured, r.predicted),
            xytext=(-14, 22 + 6 * (i % 3)) if above else (14, -26 - 6 * (i % 3)),
            textcoords="offset points", fontsize=7.5, ha="right" if above else "left",
            arrowprops={"arrowstyle": "-", "color": GRAY, "lw": 0.6},
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    what, unit = quantity.what, quantity.unit
    axes.set(xlabel=f"measured {what} ({unit})", ylabel=f"predicted ({unit})")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda x, _: f"{x:g}"))
        axis.set_minor_formatter(matplotlib.ticker.NullFormatter())
        axis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    axes.grid(alpha=0.25, lw=0.5)
    axes.legend(fontsize=7.5, loc="lower right")


def plot(tables: dict[str, pd.DataFrame], title: str) -> Figure:
    """Both panels. `tables`: the result of `predicted` for each measured column."""
    figure = Figure(figsize=(11, 5.6), layout="constrained")
    figure.suptitle(title, fontsize=11)
    for axes, quantity in zip(figure.subplots(1, 2), QUANTITIES, strict=True):
        draw(axes, tables[quantity.column], quantity)
    return figure


def main() -> None:
    parser = session.arguments(__doc__)
    parser.add_argument("--truth", type=Path, default=default_truth(), help="measured steps")
    args = parser.parse_args()
    if not args.truth.is_file():
        raise session.Stop(f"no measured steps in {args.truth}: say --truth FILE")
    table = pd.read_csv(args.truth)
    tables = {}
    for quantity in QUANTITIES:
        rows = tables[quantity.column] = predicted(table, quantity)
        session.say(summary(rows, quantity))
    title = f"Predicted and measured training steps, {COURSE_GPU.name}, {args.truth.name}"
    session.save_plot(plot(tables, title), args.results / "predict.png")


if __name__ == "__main__":
    session.run(main)
