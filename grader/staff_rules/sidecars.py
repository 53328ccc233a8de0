"""What the sidecars say of machine, code and time.

A sidecar is text, and whoever invents a table can invent one: these rules find carelessness, and
honest confusion, which is worth a note as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from itertools import combinations
from pathlib import Path

import pandas as pd

from shared.artifacts import ArtifactError
from shared.assignment import assignment
from shared.provenance import read_sidecar

from ..rules.experiment import Results
from ..suite.places import GRADER, ROOT
from .note import Note
from .reading import measured, moment, runs

STAFF_RESULTS = ROOT / "staff" / "results"
HONEST = GRADER / "tests" / "rules" / "honest"  # folders of results that we measured ourselves
SLACK = timedelta(seconds=2)  # sidecars tell whole seconds, and the next run begins as one ends


def one_gpu(results: Results) -> list[Note]:
    """All files of a hand-in come from one model of GPU: the comparisons in it assume that.

    Honest cause: a student who worked at two sites.
    """
    names = {r.get("gpu") for found in runs(results).values() for r in found}
    names = sorted(str(name)[:60] for name in names if name)
    if len(names) < 2:
        return []
    return [Note("one_gpu", "sidecars", f"measured on different models: {', '.join(names[:4])}")]


def overlapping_runs(results: Results) -> list[Note]:
    """Two runs on one GPU at the same time disturb each other, or were not both run.

    Runs on one GPU (by UUID) whose times overlap by more than two seconds.

    Honest cause: two jobs started at once, on a machine that lets them share the GPU.
    """
    spans: dict[str, tuple[str, datetime, datetime, str]] = {}
    for file, found in runs(results).items():
        for r in found:
            start, end = moment(r.get("started")), moment(r.get("ended"))
            if start and end and r.get("gpu_uuid"):
                spans[str(r.get("run"))] = (str(r["gpu_uuid"]), start, end, file)
    for (gpu, start, end, file), (gpu2, start2, end2, file2) in combinations(
        list(spans.values())[:200], 2
    ):
        shared = min(end, end2) - max(start, start2)
        if gpu == gpu2 and shared > SLACK:
            figures = {"s": shared.total_seconds()}
            what = "measured at the same time on one GPU"
            return [Note("overlapping_runs", f"{file}, {file2}", what, figures)]
    return []


def no_sidecar(results: Results) -> list[Note]:
    """Every script writes a sidecar beside its table, and names each run that a row came from.

    Honest cause: the sidecar was left out when the files were copied together.
    """
    found = runs(results)
    without = [file for file, of_file in found.items() if not of_file]
    if without:
        shown = ", ".join(without[:3]) + (" ..." if len(without) > 3 else "")
        return [Note("no_sidecar", shown, "no sidecar that can be read", {"files": len(without)})]
    frame = measured(results, "sweep")
    known = {str(r.get("run")) for r in found.get("sweep.csv", [])}
    unknown = [] if frame is None else sorted(set(frame["run"]) - known)
    if not unknown:
        return []
    what = "rows of runs that the sidecar does not list"
    return [Note("no_sidecar", "sweep.csv", what, {"runs": len(unknown)})]


def other_code(results: Results) -> list[Note]:
    """The scripts are given, and the sidecar has their hashes: other code measured other things.

    Compared with this release's scripts and with those that made our own results.  The
    files that students write are not compared; a sidecar of another release is passed over.

    Honest cause: a script that was repaired, by the student or by us in the middle of the term.
    """
    known, files = _known_code(), set(assignment().files)
    changed: dict[str, None] = {}
    for of_file in runs(results).values():
        for r in of_file:
            code = r.get("code")
            if r.get("release") != assignment().release or not isinstance(code, dict):
                continue
            for name, digest in code.items():
                if name not in files and (name, digest) not in known:
                    changed[str(name)[:60]] = None
    if not changed:
        return []
    shown = ", ".join(list(changed)[:4]) + (" ..." if len(changed) > 4 else "")
    return [Note("other_code", "sidecars", f"measured with other code than released: {shown}")]


@cache
def _known_code() -> frozenset[tuple[str, str]]:
    """(name in a sidecar, SHA-256) of every script that we know."""
    known = {
        (f"a1/{path.name}", hashlib.sha256(path.read_bytes()).hexdigest())
        for path in (ROOT / "student" / "a1").glob("*")
        if path.suffix in (".py", ".sh")
    }
    for sidecar in (*STAFF_RESULTS.rglob("*.csv.json"), *HONEST.rglob("*.csv.json")):
        try:
            entries = read_sidecar(Path(str(sidecar).removesuffix(".json")))
        except ArtifactError:
            continue
        known |= {pair for entry in entries for pair in entry.get("code", {}).items()}
    return frozenset(known)


def too_quick(results: Results) -> list[Note]:
    """A run cannot have taken less time than what it says it measured.

    Between `started` and `ended` lie at least the timed calls and the warm-up, the seconds during
    which the counters were watched, and the pause before the sustained run.  A run that ends before
    it starts, or takes more than a day, is noted as well.

    Honest cause: a clock that was set during the run.
    """
    for file, found in runs(results).items():
        for r in found:
            start, end = moment(r.get("started")), moment(r.get("ended"))
            if not start or not end:
                continue
            took_s = (end - start).total_seconds()
            least_s = _least_seconds(results, file, r)
            if not 0.85 * least_s - SLACK.total_seconds() <= took_s <= 86400:
                figures = {"took s": took_s, "at least s": least_s}
                what = f"run {str(r.get('run'))[:40]} took other than what it measured"
                return [Note("too_quick", file, what, figures)]
    return []


def _least_seconds(results: Results, file: str, run: dict) -> float:
    """Seconds that the measurements of a run took, at the very least."""
    least = LEAST_SECONDS.get(file)
    frame = measured(results, file.removesuffix(".csv")) if least else None
    frame = None if frame is None else frame.drop_duplicates()
    return 0.0 if frame is None else float(least(frame, run))


def _of_stages(frame: pd.DataFrame, run: dict) -> float:
    return 7 * frame["step_ms"].sum() / 1e3 + _option(run, "--seconds", 4)


def _of_sweep(frame: pd.DataFrame, run: dict) -> float:
    mine = frame[frame["run"] == run.get("run")]
    return 20 * mine["step_ms"].sum() / 1e3 + len(mine) * _option(run, "--seconds", 3)


# Timed calls and warm-up, the seconds of the counters, and the pause before the sustained run.
LEAST_SECONDS: dict[str, Callable[[pd.DataFrame, dict], float]] = {
    "gemm.csv": lambda f, run: 35 * f["ms"].sum() / 1e3,
    "gemm_sustained.csv": lambda f, run: f["seconds"].max() + _option(run, "--idle-seconds", 10),
    "regimes.csv": lambda f, run: len(f) * _option(run, "--seconds", 4),
    "ops.csv": lambda f, run: 35 * f["ms"].sum() / 1e3,
    "micro_batches.csv": lambda f, run: 4 * f["step_ms"].sum() / 1e3,
    "stages.csv": _of_stages,
    "stages_rc.csv": _of_stages,
    "sweep.csv": _of_sweep,
}


def _option(run: dict, name: str, default: float) -> float:
    """The number after `name` in the run's command."""
    command = run.get("command")
    words = [str(word) for word in command] if isinstance(command, list) else []
    for i, word in enumerate(words):
        value = word.partition("=")[2] if word.startswith(f"{name}=") else words[i + 1 : i + 2]
        if word == name or word.startswith(f"{name}="):
            try:
                return float(value if isinstance(value, str) else value[0])
            except (ValueError, IndexError):
                return 0.0  # unreadable: nothing is claimed of this run
    return default
