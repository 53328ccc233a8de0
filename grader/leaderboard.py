"""The class's most accurate predictors: median error on the hidden configurations.

`entries` makes what a Gradescope result shows as its leaderboard. As a program, it ranks a whole
class from the results that were written for its hand-ins:

    python -m grader.leaderboard RESULTS.json ...

A participant is called as the file, or the file's folder where all files are results.json. The
staff's own predictor is judged anew and stands in the table, without a rank.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .suite.backend import Backend
from .suite.places import ROOT
from .truth import (
    MEMORY,
    TIME,
    Judged,
    NoTruthError,
    Quantity,
    Step,
    graded,
    judge,
    picked,
    read_truth,
    truth_path,
)

STAFF = "the staff's predictor"
DECIMALS = 1  # of a per cent: what differs by less is a tie


@dataclass(frozen=True)
class Board:
    """One of the two leaderboards."""

    quantity: Quantity
    name: str  # as Gradescope shows it


BOARDS = (
    Board(TIME, "step time: median error (%)"),
    Board(MEMORY, "peak memory: median error (%)"),
)


def median_error_percent(judged: Sequence[Judged]) -> float | None:
    """Median of the errors' sizes. None if half of the configurations have no usable prediction.

    A configuration whose prediction counts as wrong has an infinite error, so leaving out the hard
    ones does not help.
    """
    if not judged:
        return None
    median = statistics.median(abs(j.error) for j in judged)
    return round(100 * median, DECIMALS) if math.isfinite(median) else None


def entries(predictions: dict[str, list], steps: Sequence[Step]) -> list[dict]:
    """Gradescope's `leaderboard`, from what the probe `perfmodel.predictions` saw.

    predictions: its answer by function, each for the steps that are graded on that quantity, in
    the order of `truth.graded`. A function without an answer, or without usable predictions, has
    no entry.
    """
    board = []
    for one in BOARDS:
        seen = predictions.get(one.quantity.function)
        if seen is None:
            continue
        try:
            judged = judge(seen, graded(steps, one.quantity), one.quantity)
        except AssertionError:  # the answer is incomplete: the tests say so
            continue
        error = median_error_percent(judged)
        if error is not None:
            board.append({"name": one.name, "value": error, "order": "asc"})
    return board


def asked(backend: Backend) -> list[dict]:
    """The entries of the hand-in that `backend` has: asks its predictor once for each quantity.

    Nothing while this GPU's truth is not measured.
    """
    try:
        steps = of_this_term()
    except NoTruthError:
        return []
    answers = {}
    for one in BOARDS:
        calls = [step.arguments for step in graded(steps, one.quantity)]
        args = {"function": one.quantity.function, "steps": calls}
        reply = backend.observe("perfmodel.predictions", args, "leaderboard")
        if not reply.failed:
            answers[one.quantity.function] = reply.value
    return entries(answers, steps)


@dataclass(frozen=True)
class Line:
    """A participant's place in one table."""

    rank: int | None  # None: the staff
    who: str
    error_percent: float


def table(errors: dict[str, float], staff: float | None = None) -> list[Line]:
    """Participants by their errors, smallest first. Ties share a rank, and the next one skips.

    The staff's predictor stands where its error puts it, before whoever ties with it, and takes
    no rank away.
    """
    values = sorted(errors.values())
    lines = [Line(1 + values.index(e), who, e) for who, e in errors.items()]
    if staff is not None:
        lines.append(Line(None, STAFF, staff))
    return sorted(lines, key=lambda line: (line.error_percent, line.rank or 0, line.who))


def printed(title: str, lines: Sequence[Line]) -> str:
    """A table in Markdown."""
    rows = [f"| {x.rank or '-'} | {x.who} | {x.error_percent:.{DECIMALS}f} |" for x in lines]
    return "\n".join([f"### {title}", "", "| rank | who | % |", "| --- | --- | --- |", *rows])


def read_results(paths: Sequence[Path]) -> dict[str, dict[str, float]]:
    """{board: {participant: error}} from results as the judge writes them; others are passed by."""
    boards: dict[str, dict[str, float]] = {one.name: {} for one in BOARDS}
    same_names = len({path.name for path in paths}) < len(paths)
    for path in paths:
        who = path.parent.name if same_names else path.stem
        for entry in json.loads(path.read_text(encoding="utf-8")).get("leaderboard") or []:
            value = entry.get("value")
            if entry.get("name") in boards and isinstance(value, (int, float)):
                boards[entry["name"]][who] = float(value)
    return boards


def of_this_term() -> list[Step]:
    """The hidden configurations that this term's secret picks."""
    term = tomllib.loads((ROOT / "staff" / "term.toml").read_text(encoding="utf-8"))
    return picked(read_truth(truth_path(hidden=True)), term["secret"])


def staff_entries(steps: Sequence[Step]) -> dict[str, float]:
    """The staff's errors by board, from its own code: no hand-in is in this process."""
    from a1 import perfmodel
    from olmoe.config import OlmoeConfig

    predictions = {}
    for one in BOARDS:
        predict = getattr(perfmodel, one.quantity.function)
        predictions[one.quantity.function] = [
            {
                "value": predict(OlmoeConfig(n_layers=step.layers), *step.arguments[1:]),
                "raised": "",
                "offence": "",
            }
            for step in graded(steps, one.quantity)
        ]
    return {entry["name"]: entry["value"] for entry in entries(predictions, steps)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, nargs="+", help="of the class's hand-ins")
    args = parser.parse_args()
    staff = staff_entries(of_this_term())
    for name, errors in read_results(args.results).items():
        print(printed(name, table(errors, staff.get(name))), end="\n\n")


if __name__ == "__main__":
    main()
