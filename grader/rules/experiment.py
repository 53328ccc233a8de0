"""What a student hands in of the experiments: files as data frames, runs, and the GPU of each."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from shared.artifacts import ArtifactError, Table, of_experiment, read, table
from shared.assignment import assignment
from shared.gpus import COURSE_GPU, FIGURES, GPUS, Gpu, UnknownGpuError
from shared.gpus import gpu as data_sheet
from shared.provenance import read_sidecar

BEYOND_THE_SHEETS = 4  # how much more than the best known GPU one without a sheet may be


@dataclass
class Results:
    """The folder of an attempt at the experiments.  Files are read when they are asked for, once.

    An artifact's name is its key in artifacts.toml: "gemm", "fwd_small_ranges".
    """

    folder: Path
    _frames: dict[str, pd.DataFrame | ArtifactError] = field(default_factory=dict, repr=False)

    def frame(self, name: str) -> pd.DataFrame:
        """Artifact `name` as shared.artifacts.read returns it: indexed by the line in the file.

        Callers must not change it.  Raises ArtifactError for a file that is missing or cannot be
        read as that artifact.
        """
        if name not in self._frames:
            wanted = table(name)
            try:
                self._frames[name] = read(self.folder / wanted.file, name)
            except ArtifactError as wrong:
                self._frames[name] = wrong
        found = self._frames[name]
        if isinstance(found, ArtifactError):
            raise found
        return found

    def problems(self, name: str) -> list[str]:
        """Why artifact `name` cannot be read, one message each; empty if it can."""
        try:
            self.frame(name)
        except ArtifactError as wrong:
            return wrong.problems
        return []

    def has(self, name: str) -> bool:
        """Whether artifact `name` is there and can be read."""
        return not self.problems(name)

    def readable(self, experiment: str) -> list[Table]:
        """The artifacts of an experiment ("E2") that are there and can be read."""
        return [t for t in tables_of(experiment) if self.has(t.name)]

    def missing(self, experiment: str) -> list[str]:
        """The names of an experiment's files, plots included, that are not there."""
        files = assignment().exercise(experiment).files
        return [name for name in files if not (self.folder / name).is_file()]

    def runs(self, name: str) -> list[dict]:
        """The runs that the artifact's sidecar lists; empty without a readable sidecar."""
        try:
            return read_sidecar(self.folder / table(name).file)
        except ArtifactError:
            return []

    def gpu(self, name: str, run: str | None = None) -> Gpu:
        """The data sheet of the GPU that made artifact `name`, or one of its runs.

        Where several GPUs contributed, the best figures of all of them.  A slice of a GPU has the
        sheet of the whole.  A GPU that nobody has a sheet of gets one that allows more than any
        known GPU (`has_sheet` tells).  The course's, where the sidecar names none.
        """
        return best_of([sheet_of(one) for one in self.gpu_names(name, run)] or [COURSE_GPU])

    def gpus(self, name: str) -> list[Gpu]:
        """The data sheet of every GPU that contributed to artifact `name`."""
        return [sheet_of(one) for one in self.gpu_names(name)] or [COURSE_GPU]

    def gpu_names(self, name: str, run: str | None = None) -> list[str]:
        """The GPUs that the sidecar of artifact `name` names, as their drivers called them."""
        runs = [r for r in self.runs(name) if run is None or r.get("run") == run]
        names = [r["gpu"].strip() for r in runs if isinstance(r.get("gpu"), str)]
        return list(dict.fromkeys(one for one in names if one))


def load(folder: Path | str) -> Results:
    """The experiments' files in `folder`, which need not exist."""
    return Results(Path(folder))


def tables_of(experiment: str) -> list[Table]:
    """The CSV files of an experiment ("E2"), in the order of artifacts.toml."""
    return of_experiment(assignment().exercise(experiment).number)


def sheet_of(name: str) -> Gpu:
    """The data sheet of the GPU that a driver calls `name`; see `Results.gpu`."""
    whole = re.sub(r"\s+MIG\b.*", "", name)  # "NVIDIA H200 MIG 3g.71gb"
    try:
        return data_sheet(whole)
    except UnknownGpuError:
        return replace(
            best_of(GPUS, factor=BEYOND_THE_SHEETS), name=name, aliases=(), architecture="unknown"
        )


def has_sheet(gpu: Gpu) -> bool:
    """Whether `gpu` is a known one, and not what `sheet_of` makes up to be fair to others."""
    return gpu.architecture != "unknown"


def best_of(gpus: list[Gpu] | tuple[Gpu, ...], factor: float = 1) -> Gpu:
    """A data sheet with every figure the largest among `gpus`, times `factor`."""
    if len(gpus) == 1 and factor == 1:
        return gpus[0]
    figures = {name: factor * max(getattr(gpu, name) for gpu in gpus) for name in FIGURES}
    # max_tflops is peak_tflops x max_sm_mhz / boost_mhz: the best must not fall below anybody's
    best = factor * max(gpu.max_tflops for gpu in gpus)
    figures["boost_mhz"] = math.floor(figures["peak_tflops"] * figures["max_sm_mhz"] / best)
    known = all(has_sheet(gpu) for gpu in gpus)
    name = " and ".join(gpu.name for gpu in gpus)
    return replace(
        gpus[0], **figures, name=name, aliases=(), architecture="several" if known else "unknown"
    )
