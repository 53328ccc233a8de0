"""Hand-ins made in memory, and a small assignment that they belong to."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import tarfile
import zipfile

from shared.assignment import Assignment, Exercise, HandinRules, Suite
from shared.assignment import Limits as RunLimits

SOURCE = b"def answer():\n    return 42\n"


def sample_table(**rules) -> Assignment:
    """An assignment of two Python files, one text and one experiment."""
    handin = {
        "results": "results/p9",
        "results_suffixes": (".csv", ".png"),
        "challenges": "p9/challenges",
        "challenges_suffixes": (".py",),
        "max_entries": 50,
        "max_source_bytes": 10_000,
        "max_artifact_bytes": 50_000,
        "max_total_bytes": 200_000,
    }
    return Assignment(
        name="p9",
        title="A sample",
        course="X1",
        term="t",
        release="7",
        gpu="any",
        files=("pkg/ops.py", "p9/model.py", "p9/answers.md"),
        handin=HandinRules(**(handin | rules)),
        limits=RunLimits(*[1] * len(dataclasses.fields(RunLimits))),
        suites={"public": Suite("public tests", "visible")},
        exercises=(
            Exercise("coding", 1, "one", 5, file="pkg/ops.py", implements=("first", "second")),
            Exercise("coding", 2, "two", 5, file="p9/model.py", implements=("Net.forward",)),
            Exercise("experiment", 1, "run", 5, command="python p9/run.py", artifacts=("t.csv",)),
            Exercise("written", 1, "why", 10),
        ),
    )


def sample_files() -> dict[str, bytes]:
    """Everything that the sample assignment wants."""
    return {
        "pkg/ops.py": SOURCE,
        "p9/model.py": SOURCE,
        "p9/answers.md": b"Name: A\n\n## Question 1\n\nBecause.\n",
        "results/p9/t.csv": b"m,ms\n1,2.0\n",
    }


def sample_manifest(files: dict[str, bytes], **changes) -> bytes:
    content = {
        "assignment": "p9",
        "release": "7",
        "student": "ab123",
        "files": [
            {"path": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in files.items()
        ],
    }
    return json.dumps(content | changes).encode()


def entry(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, **fields):
    """One member of a tar archive, and its bytes."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def tar_of(entries, format: int = tarfile.PAX_FORMAT, encoding: str = "utf-8") -> bytes:
    """An archive of `entries`: a dictionary of names and bytes, or what `entry` returned."""
    if isinstance(entries, dict):
        entries = [entry(name, data) for name, data in entries.items()]
    out = io.BytesIO()
    with tarfile.open(
        fileobj=out, mode="w", format=format, encoding=encoding, errors="surrogateescape"
    ) as archive:
        for info, data in entries:
            archive.addfile(info, io.BytesIO(data) if data else None)
    return out.getvalue()


def tar_gz(entries, **options) -> bytes:
    return gzip.compress(tar_of(entries, **options), mtime=0)


def zip_of(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)  # of 1980: the same bytes in every process
            archive.writestr(info, data, compress_type=method)
    return out.getvalue()


def header(name: str, kind: bytes, claimed_bytes: int) -> bytes:
    """A header alone, which may claim any size."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, claimed_bytes
    return info.tobuf(format=tarfile.GNU_FORMAT)
