"""Is everything there that the experiment asks for?"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from shared.artifacts import OUT_OF_MEMORY, Table, missing_rows, table, too_little
from shared.assignment import assignment

from .experiment import Results, tables_of
from .rule import rule

PNG = b"\x89PNG\r\n\x1a\n"
LEAST_PIXELS = (400, 300)  # the scripts draw more than twice that
SUSTAINED_S = 5.5  # of the six seconds that bench_gemm.py runs
NAMED_ROWS = 3  # missing rows that a message names


def files(results: Results, experiment: str) -> Iterator[str]:
    """Every file of the experiment is there and can be read: tables as the tables they are, plots
    as pictures.  (Not a rule like the others: they see only files that pass this.)"""
    for name in assignment().exercise(experiment).files:
        if name.endswith(".png"):
            yield from _picture(results, name, assignment().exercise(experiment).command)
    for wanted in tables_of(experiment):
        yield from results.problems(wanted.name)


def _picture(results: Results, name: str, command: str) -> Iterator[str]:
    path = results.folder / name
    if not path.is_file():
        yield f"{name} is missing: run {command}"
        return
    with path.open("rb") as picture:
        head = picture.read(24)
    if len(head) < 24 or not head.startswith(PNG) or head[12:16] != b"IHDR":
        yield f"{name} is not a PNG picture: make it again with {command}"
        return
    size = struct.unpack(">II", head[16:24])
    if any(is_ < least for is_, least in zip(size, LEAST_PIXELS, strict=True)):
        yield f"{name} is {size[0]} x {size[1]} pixels, too small to read: run {command} again"


def _called(wanted: Table, row: Mapping) -> str:
    """A required row in words: "expert gate_proj, m 256".  What all have in common is left out."""
    told = [c for c, values in wanted.rows.items() if len(values) > 1]
    named = (
        "shape",
        "workload",
        "op",
        "stage",
        "range",
    )  # columns whose values speak for themselves
    return ", ".join(str(row[c]) if c in named else f"{c} {row[c]}" for c in told)


@rule("*")
def rows_are_there(results: Results, name: str) -> Iterator[str]:
    """Every configuration that the experiment asks for has its row: a script that was interrupted,
    or run with other arguments, leaves some out."""
    wanted, frame = table(name), results.frame(name)
    missing = missing_rows(wanted, frame)
    if not missing:
        return
    what = wanted.recording or wanted.file
    fixed = {c: v[0] for c, v in wanted.rows.items() if len(v) == 1}
    wrong = [f"{c} {value}" for c, value in fixed.items() if not (frame[c] == value).any()]
    if wrong:
        yield f"{what}: no row with {', '.join(wrong)}; run {wanted.command}"
        return
    named = "; ".join(_called(wanted, row) for row in missing[:NAMED_ROWS])
    more = f" and {len(missing) - NAMED_ROWS} more" if len(missing) > NAMED_ROWS else ""
    yield f"{what}: no row for {named}{more}; run {wanted.command}"


@rule("*")
def no_row_is_there_twice(results: Results, name: str) -> Iterator[str]:
    """A table that one run writes has one row per configuration.  Two runs joined by hand leave it
    open which of them the row, the plot and the totals are of."""
    wanted, frame = table(name), results.frame(name)
    keys = list(wanted.rows)
    if not keys or wanted.append:
        return
    for line, row in frame[frame.duplicated(keys)].iterrows():
        first = frame.index[(frame[keys] == row[keys]).all(axis=1)][0]
        yield (
            f"{wanted.file}, lines {first} and {line}: {_called(wanted, row)} is there twice, from "
            f"two runs perhaps; run {wanted.command} once more, which writes the file anew"
        )


@rule("sweep")
def sweep_is_large_enough(results: Results, name: str) -> Iterator[str]:
    """The predictor's constants need more than one grid: rows, and several values of everything
    that a configuration consists of."""
    wanted = table(name)
    for lack in too_little(wanted, results.frame(name)):
        yield f"{wanted.file}: {lack}; each run of a1/sweep.py adds rows"


@rule("micro_batches", "sweep")
def status_is_known(results: Results, name: str) -> Iterator[str]:
    """A row was measured, or did not fit; nothing else is possible."""
    file, frame = table(name).file, results.frame(name)
    for line, status in frame["status"][~frame["status"].isin(["ok", OUT_OF_MEMORY])].items():
        yield f"{file}, line {line}, column status: {status!r} is neither ok nor {OUT_OF_MEMORY}"


@rule("micro_batches")
def something_fits(results: Results, name: str) -> Iterator[str]:
    """With small micro batches the step fits on every GPU of this size.  Where none does, another
    program has the memory, and nothing was measured."""
    file, frame = table(name).file, results.frame(name)
    for recompute, rows in frame.groupby("recompute"):
        if (rows["status"] == OUT_OF_MEMORY).all():
            yield (
                f"{file}: with recompute {recompute}, every row says {OUT_OF_MEMORY}. Is another "
                "program using the GPU (nvidia-smi)? Then run python a1/micro_batches.py again"
            )


@rule("stages", "stages_rc")
def totals_are_filled_in(results: Results, name: str) -> Iterator[str]:
    """The row `step` has totals of its own, which other rows leave blank."""
    file, frame = table(name).file, results.frame(name)
    needed = ["optimizer_ms", "step_ms", "tokens_per_s", "peak_gib"]
    for line, row in frame[frame["stage"] == "step"].iterrows():
        if blank := [c for c in needed if row[c] != row[c]]:
            yield f"{file}, line {line}: the row step has no {', '.join(blank)}"


@rule("gemm_sustained")
def sustained_long_enough(results: Results, name: str) -> Iterator[str]:
    """The clock needs seconds to settle: a run that was interrupted shows the boost alone."""
    wanted, frame = table(name), results.frame(name)
    for lack in too_little(wanted, frame):
        yield f"{wanted.file}: {lack}; run {wanted.command}, and let it finish"
    lasted_s = frame["seconds"].max()
    if lasted_s < SUSTAINED_S:
        yield (
            f"{wanted.file} ends after {lasted_s:.4g} s of six (column seconds); run "
            f"{wanted.command}, and let it finish"
        )
