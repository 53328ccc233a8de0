"""Where a measurement comes from: the sidecar NAME.csv.json beside each artifact NAME.csv.

A sidecar is `{"format": 1, "artifact": "gemm.csv", "runs": [...]}` with one entry per run that
contributed to the file: one, except where a table grows over several runs.  An entry is what
`describe` returns.  Nothing is guessed: what the machine does not tell is null.
"""

import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import secrets
import socket
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shared.artifacts import ArtifactError, write_text
from shared.assignment import assignment

FORMAT = 1


def sidecar_path(artifact: Path) -> Path:
    """gemm.csv -> gemm.csv.json."""
    return artifact.with_name(artifact.name + ".json")


def describe(command: list[str], code: Iterable[Path] = ()) -> dict[str, Any]:
    """One run, as it begins: the machine, the software, the command, and the code.

    Args:
        command: script and arguments.
        code: the files that the run consists of, besides those that the student edits.
    """
    started = utc_now()
    return {
        "run": f"{started.replace('-', '').replace(':', '')}-{secrets.token_hex(2)}",
        "started": started,
        "ended": None,
        "command": command,
        **_gpu(),
        "python": platform.python_version(),
        "hostname": socket.gethostname(),
        "slurm_job_id": os.environ.get("SLURM_JOB_ID"),
        "release": assignment().release,
        "code": _hashes(code),
    }


def utc_now() -> str:
    """2027-03-01T12:00:00Z."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_sidecar(artifact: Path, run: dict[str, Any], append: bool = False) -> Path:
    """Note that `run` wrote `artifact`, until now.  `append`: earlier runs contributed as well.

    The entry of a run that is there already is replaced, so a run may note itself row by row.
    """
    runs = []
    if append:
        with contextlib.suppress(ArtifactError):  # an unreadable note must not cost a measurement
            runs = [old for old in read_sidecar(artifact) if old.get("run") != run["run"]]
    runs.append({**run, "ended": utc_now()})
    text = json.dumps(
        {"format": FORMAT, "artifact": artifact.name, "runs": runs}, indent=1, allow_nan=False
    )
    return write_text(sidecar_path(artifact), text + "\n")


def read_sidecar(artifact: Path) -> list[dict[str, Any]]:
    """The runs that made `artifact`; empty when there is no sidecar.

    Raises ArtifactError when there is one that cannot be read.
    """
    path = sidecar_path(Path(artifact))
    if not path.exists():
        return []
    try:
        runs = json.loads(path.read_text(encoding="utf-8-sig"))["runs"]
        if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
            raise TypeError
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise ArtifactError(
            [f"{path.name} is not a list of runs as an experiment writes it"]
        ) from None
    return runs


def _gpu() -> dict[str, Any]:
    facts = dict.fromkeys(("gpu", "gpu_uuid", "gpus_visible", "driver", "torch", "cuda"))
    try:
        import torch
    except ImportError:
        return facts
    facts |= {"torch": torch.__version__, "cuda": torch.version.cuda}
    if not torch.cuda.is_available():
        return facts
    with contextlib.suppress(Exception):  # a note about the machine is never worth a failed run
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        facts |= {"gpu": properties.name, "gpus_visible": torch.cuda.device_count()}
        facts["gpu_uuid"] = f"GPU-{properties.uuid}"
    with contextlib.suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        driver = pynvml.nvmlSystemGetDriverVersion()
        facts["driver"] = driver.decode() if isinstance(driver, bytes) else driver
        pynvml.nvmlShutdown()
    return facts


def _hashes(code: Iterable[Path]) -> dict[str, str]:
    """SHA-256 by module name of the student's modules, by a1/NAME of the others."""
    files = {f"a1/{path.name}": path for path in map(Path, code)}
    for module, file in assignment().modules.items():
        loaded = sys.modules.get(module)
        origin = getattr(loaded, "__file__", None)
        if origin is None:
            with contextlib.suppress(ImportError, ValueError):
                spec = importlib.util.find_spec(module)
                origin = spec.origin if spec else None
        if origin:
            files[file] = Path(origin)
    hashes = {}
    for name, path in sorted(files.items()):
        with contextlib.suppress(OSError):
            hashes[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return hashes
