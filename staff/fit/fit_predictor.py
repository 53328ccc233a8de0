"""Fits the constants of the staff's predictor (`Rates` in a1/perfmodel.py) to the experiments.

    PYTHONPATH=staff:student:. python staff/fit/fit_predictor.py [--results FOLDER ...]

Reads what the experiments wrote, as every student can: sweep.csv (steps and their parts), gemm.csv
(GEMMs of thousands of rows), and the recording of a forward pass that the host cannot launch fast
enough, fwd_small. Several folders are several occasions. Prints each constant with its meaning, as
a block to paste into perfmodel.py, and how well the sweep is met. Truth tables are never read.

Steps that wait for the host (the GPU's counters say so) determine `host_recompute_ms`, and nothing
else. Whatever the GPU does is fitted to relative errors, outliers counting less (soft L1).
"""

import argparse
import inspect
import re
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from a1 import perfmodel
from a1.perfmodel import Rates
from olmoe.config import OlmoeConfig
from shared import artifacts

HOST = ("host_forward_ms", "host_backward_ms", "host_recompute_ms", "host_step_ms")
FITTED = tuple(f.name for f in fields(Rates) if f.name not in HOST)
LAUNCHES_BACKWARD = 1.5  # for each in the forward pass, as the recording of a step counts them
BUSY_PERCENT = 95  # a GPU that runs kernels less often than this waits for the host
LARGE_GEMM_ROWS = 4096
WEIGHTS = {"forward_ms": 1.0, "backward_ms": 1.0, "optimizer_ms": 0.5, "step_ms": 2.0, "gemm": 0.2}
OUTLIER = 0.03


@dataclass(frozen=True)
class Row:
    """A row of sweep.csv."""

    cfg: OlmoeConfig
    micro_batch_size: int
    seqlen: int
    recompute: bool
    measured_ms: dict[str, float]
    busy_percent: float  # NaN where the block was too short for the counters

    @property
    def step(self) -> tuple:
        return self.cfg, self.micro_batch_size, self.seqlen, self.recompute

    @property
    def waits(self) -> bool:
        return self.busy_percent < BUSY_PERCENT


def read_sweep(folder: Path) -> list[Row]:
    """The measured steps of a results folder."""
    table = artifacts.read(folder / "sweep.csv", "sweep")
    times = ("forward_ms", "backward_ms", "recompute_ms", "optimizer_ms", "step_ms")
    return [
        Row(
            OlmoeConfig(n_layers=int(r.layers)),
            int(r.micro_batch_size),
            int(r.seqlen),
            r.recompute == "yes",
            {name: float(getattr(r, name)) for name in times},
            float(r.kernel_running_percent),
        )
        for r in table[table.status == "ok"].itertuples()
    ]


def read_gemms(folder: Path) -> pd.DataFrame:
    """GEMMs so large that the host's launches are lost in them."""
    table = artifacts.read(folder / "gemm.csv", "gemm")
    return table[(table.m >= LARGE_GEMM_ROWS) & (table["shape"] != "router")]


def recorded_launches_ms(folder: Path, layers: int = 16) -> float:
    """What the host takes to launch one layer's forward: a pass of 1 x 512 is all launches.

    A recording slows the host down, so this is an upper bound.
    """
    ranges = artifacts.read(folder / "fwd_small_ranges.csv").set_index("range")
    return float(ranges.gpu_ms_per_step["forward"]) / layers


def residuals(x: np.ndarray, rates: Rates, rows: list[Row], gemms: pd.DataFrame) -> np.ndarray:
    """Logarithms of predicted over measured, weighted."""
    candidate = replace(rates, **dict(zip(FITTED, np.exp(x), strict=True)))
    errors = []
    for row in rows:
        terms = perfmodel.step_terms_ms(candidate, *row.step)
        seen = {**terms, "step_ms": sum(terms.values())}
        errors += [
            weight * np.log(seen[name] / row.measured_ms[name])
            for name, weight in WEIGHTS.items()
            if name in seen
        ]
    for gemm in gemms.itertuples():
        predicted = perfmodel.gemm_ms(candidate, gemm.m, gemm.k, gemm.n)
        errors.append(WEIGHTS["gemm"] * np.log(predicted / gemm.ms))
    return np.array(errors)


def fit(folders: list[Path], start: Rates = perfmodel.H200) -> Rates:
    """The rates that meet the experiments in these folders best."""
    rows = [row for folder in folders for row in read_sweep(folder)]
    gemms = pd.concat([read_gemms(folder) for folder in folders])
    on_gpu = [row for row in rows if not row.waits]
    x = np.log([getattr(start, name) for name in FITTED])
    found = least_squares(
        residuals, x, args=(start, on_gpu, gemms), loss="soft_l1", f_scale=OUTLIER
    )
    rates = replace(start, **dict(zip(FITTED, np.exp(found.x), strict=True)))
    return _host(rates, rows, folders)


def _host(rates: Rates, rows: list[Row], folders: list[Path]) -> Rates:
    """The host's constants: the forward's from its recording, recomputation's from what waits.

    Another upper bound: where the GPU is busy throughout, the host is not slower.
    """
    bounds = [recorded_launches_ms(folder) for folder in folders]
    bounds += [
        _per_layer_ms(rates, row) / (1 + LAUNCHES_BACKWARD)
        for row in rows
        if row.busy_percent >= BUSY_PERCENT and not row.recompute
    ]
    forward_ms = min(bounds)
    left = [
        _per_layer_ms(rates, row) - (1 + LAUNCHES_BACKWARD) * forward_ms
        for row in rows
        if row.waits and row.recompute
    ]
    return replace(
        rates,
        host_forward_ms=forward_ms,
        host_backward_ms=LAUNCHES_BACKWARD * forward_ms,
        host_recompute_ms=max([forward_ms, *([float(np.median(left))] if left else [])]),
    )


def _per_layer_ms(rates: Rates, row: Row) -> float:
    return (row.measured_ms["step_ms"] - rates.host_step_ms) / row.cfg.n_layers


def meanings() -> dict[str, str]:
    """What each constant stands for, from the comments in its definition."""
    return dict(re.findall(r"^    (\w+): float(?:  # (.*))?$", inspect.getsource(Rates), re.M))


def printed(rates: Rates) -> str:
    """The constants as they stand in perfmodel.py, each with its meaning."""
    said = meanings()
    lines = []
    for name, value in asdict(rates).items():
        constant = f"    {name}={value:.4g},"
        lines.append(f"{constant:36}{'# ' + said[name] if said[name] else ''}".rstrip())
    return "\n".join(["H200 = Rates(", *lines, ")"])


def errors(rates: Rates, rows: list[Row]) -> list[float]:
    """Relative, signed, of each row's step."""
    return [perfmodel.step_ms(rates, *row.step) / row.measured_ms["step_ms"] - 1 for row in rows]


def report(rates: Rates, rows: list[Row]) -> str:
    """How well the sweep is met, row by row and in all."""
    lines, found = [], errors(rates, rows)
    for row, error in zip(rows, found, strict=True):
        step = f"{row.cfg.n_layers} layers {row.micro_batch_size:3d} x {row.seqlen:<5d}"
        waits = "  waits for the host" if row.waits else ""
        recompute = "recompute" if row.recompute else ""
        lines.append(
            f"{step} {recompute:9} {row.measured_ms['step_ms']:8.2f} ms {error:+6.1%}{waits}"
        )
    size = np.abs(found)
    lines.append(f"median error {np.median(size):.1%}, worst {size.max():.1%}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folder = Path("staff/results/a1")
    parser.add_argument("--results", type=Path, nargs="+", default=[folder], help="folders")
    args = parser.parse_args()
    rates = fit(args.results)
    print(printed(rates))
    print(report(rates, [row for folder in args.results for row in read_sweep(folder)]))


if __name__ == "__main__":
    main()
