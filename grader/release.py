"""What a release holds: one table of files, and the flat copy that is made of it.

`staff/tools/release.py` makes the students' repository from the whole table; the judge lays out the
part that probes need, so that a hand-in runs among the files that its author had.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shared.assignment import assignment
from shared.gpus import COURSE_GPU

from .suite.places import ROOT


@dataclass(frozen=True)
class Part:
    """Files of one folder. Only what is named is ever copied."""

    source: str  # folder of this repository
    target: str  # folder of the release
    names: str  # separated by blanks
    probed: bool = False  # a probe needs it: it is laid out for the solver as well
    optional: bool = False  # a release without it is one, too
    filled: bool = False  # text in which the site's facts are put in place of @names@


PARTS = (
    Part("olmoe", "olmoe", "config.py data.py load.py", probed=True),
    Part("student/olmoe", "olmoe", "model.py prof.py train.py", probed=True),
    Part("student/a1", "a1", "perfmodel.py", probed=True),
    Part(
        "student/a1",
        "a1",
        """answers.md bench_gemm.py bench_ops.py check.py hello.py memory_curve.py micro_batches.py
        nsys.sh nsys_export.py passage.txt plots.py predict_plot.py profile_step.py ranges.py
        recording.py regimes.py routing.py session.py stages.py sweep.py text.py
        torch_recorder.py""",
    ),
    Part(
        "shared",
        "shared",
        "assignment.py assignment.toml gpus.py gpus.toml",
        probed=True,
    ),
    Part(
        "shared",
        "shared",
        """artifact_schema.py artifacts.py artifacts.toml assignment.json completeness.py
        provenance.py received.py""",
    ),
    Part("grader", "grade", "__init__.py", probed=True),
    Part("grader", "grade", "exact.py truth.py"),
    Part(
        "grader/suite",
        "grade/suite",
        """__init__.py advice.py backend.py defaults.py lab.py modules.py observe.py places.py
        plugin.py score_table.py wire.py""",
        probed=True,
    ),
    Part("grader/suite", "grade/suite", "for_students.py"),
    Part("grader/gpu", "grade/gpu", "__init__.py check.py patches.py real.py slow.py", probed=True),
    Part(
        "grader/gpu/virtual",
        "grade/gpu/virtual",
        """__init__.py clocks.py costs.py cuda.py installed.py ledger.py machine.py modes.py
        pricing.py""",
        probed=True,
    ),
    Part(
        "grader/probes",
        "grade/probes",
        "__init__.py imports.py perfmodel.py prof.py recompute.py setup.py train.py",
        probed=True,
    ),
    Part(
        "grader/public",
        "grade/public",
        """__init__.py counts.py test_c1.py test_c2.py test_c3.py test_c4.py test_c5.py test_c6.py
        test_c7.py test_c8.py test_c9.py test_experiments.py test_setup.py""",
    ),
    Part(
        "grader/public/setup_recording",
        "grade/public/setup_recording",
        "config.json gradients.safetensors model.safetensors passes.safetensors",
    ),
    Part(
        "grader/rules",
        "grade/rules",
        """__init__.py bookkeeping.py bounds.py completeness.py experiment.py floors.py order.py
        recordings.py rule.py""",
    ),
    Part(f"staff/truth/{COURSE_GPU.slug}", "grade", "a1_truth.csv", optional=True),
    # The stubs once more, for the tests to fall back on: nobody edits these.
    Part("student", "grade/released", " ".join(assignment().modules.values()), probed=True),
    Part(".", ".", "handin.py"),
    Part("student", ".", "Makefile .gitattributes .gitignore pytest.ini"),
    Part("student", ".", "README.md AGENTS.md", filled=True),
    Part("student", ".", "HANDOUT.md HANDOUT.html", optional=True),
    Part("student/slurm", "slurm", "environment.sh run.sh shell.rc"),
    Part("student/slurm", "slurm", "job.sbatch site.sh", filled=True),
)
SOLVER = Part(
    "grader/solver",
    "grade/solver",
    "__init__.py frames.py landlock.py seccomp.py shield.py zygote.py",
)


def files_of(parts: tuple[Part, ...] = PARTS) -> Iterator[tuple[Path, str, Part]]:
    """(source, path in the release, its part) of every file. A source need not exist."""
    for part in parts:
        for name in part.names.split():
            target = (Path(part.target) / name).as_posix()
            yield ROOT / part.source / name, target, part


def lay_out_for_probes(folder: Path) -> None:
    """Writes the part of the release that probes need, and the solver, into `folder`."""
    for source, target, _ in files_of((*(p for p in PARTS if p.probed), SOLVER)):
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / target)
