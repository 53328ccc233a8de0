"""A release, and machines to run it on: a laptop, a login node, a GPU node."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from staff.tools import release

TOOLS = (
    "awk bash cat chmod cp dirname env git grep gzip head id ln ls make mkdir mktemp mv ps rm sed "
    "sh sleep sort tail tee touch tr uname wc"
)
SHELL = shutil.which("bash")

# What Slurm's programs do, as far as run.sh can tell. Our own "slurmstepd" is one by its name.
FAKES = {
    "slurmstepd": '"$@"\nexit $?',
    "nvidia-smi": '[[ -n ${FAKE_GPU:-} ]] || exit 9\necho "GPU 0: NVIDIA H200 (UUID: GPU-1)"',
    "srun": r"""printf '%s\n' "$@" >"$FAKE/srun.args"
env | grep -E '^SLURM_' >"$FAKE/srun.env" || true
if [[ -f $FAKE/srun.says ]]; then cat "$FAKE/srun.says" >&2; fi
if [[ -f $FAKE/srun.refuses ]]; then exit 1; fi
while [[ -f $FAKE/squeue.answers && -s $FAKE/squeue.answers ]]; do sleep 0.1; done
while [[ $1 == --* ]]; do shift; done
export SLURM_JOB_ID=7 FAKE_GPU=1
slurmstepd "$@"; status=$?
if ((status)); then echo "srun: error: gpu1: task 0: Exited with exit code $status" >&2; fi
exit $status""",
    # One answer for each time that the job's own state is asked, from a file.
    "squeue": r"""case "$*" in
*--jobs=*) cat "$FAKE/job.state" 2>/dev/null ;;
*--name=*) head -n 1 "$FAKE/squeue.answers"; sed -i 1d "$FAKE/squeue.answers" ;;
*--states=PENDING*) echo 1; echo 2; echo 3 ;;
esac""",
}


@dataclass
class Machine:
    """Where a student works: its programs, its environment, and the clone."""

    clone: Path
    fake: Path  # what the fake programs are told, and tell
    environ: dict[str, str] = field(default_factory=dict)

    def run(self, *command: str, inside: bool = False, **more: str) -> subprocess.CompletedProcess:
        """Runs a command in the clone; `inside` a job step."""
        if inside:
            command = (str(self.fake.parent / "bin" / "slurmstepd"), *command)
        return subprocess.run(
            command,
            cwd=self.clone,
            env=self.environ | more,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=300,
            check=False,
        )

    def script(self, *arguments: str, **more) -> subprocess.CompletedProcess:
        return self.run("bash", "slurm/run.sh", *arguments, **more)

    def submitted(self) -> list[str]:
        """The arguments of srun; empty if it was not called."""
        file = self.fake / "srun.args"
        return file.read_text().splitlines() if file.is_file() else []


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> tuple[Path, list[str]]:
    """A release, and the names of its files. Not to be written to: `clone` is."""
    folder = tmp_path_factory.mktemp("release", numbered=True)
    return folder, release.build(folder)


@pytest.fixture
def clone(built, tmp_path) -> Path:
    """A copy of the release, at a path with blanks in it."""
    folder = tmp_path / "my course" / "a clone"
    shutil.copytree(built[0], folder)
    return folder


@pytest.fixture
def laptop(clone, tmp_path) -> Machine:
    """A machine without Slurm and without a GPU; VENV names this environment."""
    return machine(clone, tmp_path, ())


@pytest.fixture
def login_node(clone, tmp_path) -> Machine:
    """A machine with Slurm's programs and no GPU."""
    return machine(clone, tmp_path, FAKES)


def machine(clone: Path, folder: Path, fakes) -> Machine:
    programs, fake, home = folder / "bin", folder / "fake", folder / "home"
    for made in (programs, fake, home):
        made.mkdir()
    for tool in TOOLS.split():
        if found := shutil.which(tool):
            (programs / tool).symlink_to(found)
    for name in fakes:  # called so that /proc knows them by their own name: no `env` in between
        (programs / name).write_text(f"#!{SHELL}\n{FAKES[name]}\n")
        (programs / name).chmod(0o755)
    environ = {
        "PATH": str(programs),
        "HOME": str(home),
        "USER": "ada",
        "TMPDIR": str(folder),
        "FAKE": str(fake),
        "VENV": sys.prefix,
        "OMP_NUM_THREADS": "1",
        "QUEUE_POLL_S": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": os.environ.get("LANG", "C.UTF-8"),
    }
    return Machine(clone, fake, environ)
