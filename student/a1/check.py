"""`make check`: is everything in place?  Every line that says FAIL has a hint under it.

`[--]` is something that this machine lacks and the assignment can do without.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder that holds olmoe/ and a1/

# Nothing here needs a package that the check is about.
from shared.assignment import assignment

PYTHON = (3, 11)
TORCH = (2, 11)
PACKAGES = ("numpy", "pandas", "matplotlib", "tqdm", "safetensors", "nvidia-ml-py", "pytest")
MARKS = {"ok": "[ok]", "fail": "[FAIL]", "note": "[--]"}


@dataclass(frozen=True)
class Finding:
    """One line of the list."""

    mark: str  # ok, fail, note
    text: str
    hint: str = ""

    def __str__(self) -> str:
        line = f"{MARKS[self.mark]} {self.text}"
        return f"{line}\n     {self.hint}" if self.hint else line


def slurm() -> Finding:
    if os.environ.get("SLURM_JOB_ID"):
        return Finding("ok", "running inside a Slurm job")
    if shutil.which("sbatch"):
        return Finding(
            "fail",
            "not inside a Slurm job",
            "A login node? `make check` and `make gpu-shell` go to a GPU node by themselves.",
        )
    return Finding("note", "no Slurm here: everything runs on this machine")


def python() -> Finding:
    text = f"Python {platform.python_version()}"
    if sys.version_info >= PYTHON:
        return Finding("ok", text)
    return Finding("fail", text, f"Python {PYTHON[0]}.{PYTHON[1]} or newer is needed: use `make`.")


def packages() -> Finding:
    missing = []
    for package in PACKAGES:
        try:
            metadata.version(package)
        except metadata.PackageNotFoundError:
            missing.append(package)
    if not missing:
        return Finding("ok", "the packages that the experiments use")
    hint = "Use `make`, which loads the course's environment; elsewhere, install them."
    return Finding("fail", f"no {', '.join(missing)}", hint)


def torch_version() -> Finding:
    try:
        import torch
    except ImportError as error:
        return Finding("fail", f"PyTorch cannot be imported: {error}", "Use `make` to run this.")
    text = f"PyTorch {torch.__version__}"
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < TORCH:
        return Finding("fail", text, f"{TORCH[0]}.{TORCH[1]} or newer is needed.")
    return Finding("ok", text)


def cuda() -> Finding:
    import torch

    if torch.cuda.is_available():
        return Finding("ok", "CUDA is available")
    if torch.version.cuda is None:
        return Finding(
            "fail",
            "CUDA is not available: this PyTorch is built for the CPU",
            "Use `make`, which loads the course's environment.",
        )
    return Finding("fail", "CUDA is not available", "Is there a GPU? See what `nvidia-smi` says.")


def gpu() -> Finding:
    import torch

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    text = f"GPU: {properties.name}, {properties.total_memory / 2**30:.1f} GiB"
    if properties.name == assignment().gpu:
        return Finding("ok", text)
    return Finding("note", text, f"The assignment's figures are for the {assignment().gpu}.")


def nsys() -> Finding:
    command = os.environ.get("NSYS", "nsys")
    hint = "Set NSYS to its path, or add --recorder torch to every a1/nsys.sh."
    if shutil.which(command) is None:
        return Finding("note", "no nsys: NVIDIA Nsight Systems is not on this machine", hint)
    try:
        said = subprocess.run(
            [command, "--version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("fail", f"nsys does not start: {error}", hint)
    lines = [one for one in said.stdout.splitlines() if "version" in one.lower()]
    if said.returncode or not lines:
        said_last = (said.stderr or said.stdout).strip().splitlines()[-1:]
        return Finding("fail", f"nsys does not start: {' '.join(said_last)}", hint)
    return Finding("ok", lines[0].strip())


def checkpoint() -> Finding:
    folder = os.environ.get("OLMOE_WEIGHTS")
    if not folder:
        hint = "Use `make`, which knows where it is; elsewhere, set OLMOE_WEIGHTS to its folder."
        return Finding("fail", "no OLMoE checkpoint: OLMOE_WEIGHTS is not set", hint)
    problem = unusable(Path(folder))
    if problem:
        hint = "Do not download it yourself. Tell the course staff what this line says."
        return Finding("fail", f"OLMoE checkpoint: {folder}: {problem}", hint)
    total_bytes = sum(file.stat().st_size for file in Path(folder).glob("*.safetensors"))
    return Finding("ok", f"OLMoE checkpoint: {folder} ({total_bytes / 1e9:.1f} GB)")


def unusable(folder: Path) -> str:
    """What the checkpoint lacks, "" if nothing; its tensors are read when it is loaded."""
    needed = ["config.json", "tokenizer.json"]
    index = folder / "model.safetensors.index.json"
    try:
        if index.is_file():
            needed += sorted(set(json.loads(index.read_text())["weight_map"].values()))
        else:
            needed.append("model.safetensors")
    except (OSError, ValueError, KeyError, AttributeError):
        return f"{index.name} cannot be read"
    missing = [name for name in needed if not os.access(folder / name, os.R_OK)]
    return f"cannot read {', '.join(missing)}" if missing else ""


def course_directory() -> Finding:
    folder = os.environ.get("COURSE_DIR")
    if not folder:
        return Finding("note", "no course directory here: `make handin` writes into ./handin")
    if os.access(folder, os.W_OK | os.X_OK):
        return Finding("ok", f"your course directory: {folder}")
    hint = "Tell the course staff: your account has no directory yet, or it is not yours."
    return Finding("fail", f"your course directory: {folder} cannot be written to", hint)


def findings() -> Iterator[Finding]:
    """Every line; what needs a thing that is missing is left out."""
    yield slurm()
    yield python()
    yield packages()
    seen = torch_version()
    yield seen
    if seen.mark == "ok":
        seen = cuda()
        yield seen
        if seen.mark == "ok":
            yield gpu()
    others: tuple[Callable[[], Finding], ...] = (nsys, checkpoint, course_directory)
    for check in others:
        yield check()


def main() -> None:
    print(f"{assignment().course} setup check")
    failed = 0
    for finding in findings():
        print(finding, flush=True)
        failed += finding.mark == "fail"
    if failed:
        sys.exit(f"{failed} {'line says' if failed == 1 else 'lines say'} FAIL.")
    print("All good.")


if __name__ == "__main__":
    main()
