"""Every attack on every rung that this machine has, as root and as a user, beside a control.

The control runs the same attack without a rung and must succeed: else "refused" means nothing.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ...judge import contain
from ...judge.contain import cell, folders
from ...suite.places import ROOT
from .attacks import ATTACKS, HONEST

COPIED = (
    "grader/__init__.py",
    "grader/judge/__init__.py",
    "grader/judge/contain",
    "grader/solver",
    "grader/suite/__init__.py",
    "grader/suite/places.py",
    "grader/tests/__init__.py",
    "grader/tests/contain",
    "shared/assignment.py",
    "shared/assignment.toml",
)
NOBODY = cell.NOBODY
ACCOUNTS = ["root", "user"]
PLACES = [  # only root can give away an account
    (rung.name, account)
    for rung in contain.LADDER
    for account in ACCOUNTS
    if rung is not contain.NONE and not (rung.own_uid and account == "user")
]

# What a rung leaves open, as docs/security.md says. A test fails when this list is too long.
OPEN = {
    # Without Landlock or a namespace, what everybody may read or write is read and written.
    ("own-user", "root"): {
        "list_the_repository",
        "read_the_repository",
        "write_where_everybody_may",  # taken away with the cell
        "read_the_judges_command",
    },
    # The kernel does not count root's processes, nor those of an account that others share; the
    # watch does.
    ("bubblewrap", "root"): {"have_many_processes"},
    ("landlock", "root"): {"have_many_processes"},
    ("landlock", "user"): {"have_many_processes"},
}
NOT_FOR_USERS = {"become_root"}  # the control would need to be root


@pytest.fixture(scope="module")
def copy():
    """The part of the repository that a judge of any account needs, where all may read it."""
    with tempfile.TemporaryDirectory(prefix="repository-") as folder:
        os.chmod(folder, 0o755)
        for part in COPIED:
            target = Path(folder) / part
            target.parent.mkdir(parents=True, exist_ok=True)
            copied = shutil.copytree if (ROOT / part).is_dir() else shutil.copyfile
            copied(ROOT / part, target)
        yield Path(folder)


@functools.cache
def _run(copy: Path, account: str, rung: str) -> dict:
    python = sys.executable
    if folders.closed_to_others([Path(python), Path(sys.prefix), Path(sys.base_prefix)]):
        python = "/usr/bin/python3"
    if not os.access(python, os.X_OK):
        pytest.skip("no Python here that every account may start")
    become = []
    if account == "user" and os.geteuid() == 0:
        become = [shutil.which("setpriv"), "--reuid", str(NOBODY), "--regid", str(NOBODY)]
        become += ["--clear-groups", "--inh-caps", "-all", "--"]
    elif account == "root" and os.geteuid() != 0:
        pytest.skip("this is not root")
    driver = copy / "grader/tests/contain/driver.py"
    done = subprocess.run(
        [*become, python, "-P", "-S", str(driver), str(copy), rung, *ATTACKS],
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


def _outcomes(copy: Path, account: str, rung: str) -> dict:
    ran = _run(copy, account, rung)
    if "why_not" in ran:
        pytest.skip(f"{rung}, as {account}: {ran['why_not']}")
    return ran


@pytest.mark.xdist_group("contain")
@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_unconfined_the_attack_succeeds(copy, account, attack):
    if account == "user" and attack in NOT_FOR_USERS:
        pytest.skip("no user can do that")
    assert _outcomes(copy, account, "")["outcomes"][attack] == "done"


@pytest.mark.xdist_group("contain")
@pytest.mark.parametrize("rung, account", PLACES)
@pytest.mark.parametrize("attack", [a for a in ATTACKS if a != HONEST])
def test_on_a_rung_it_does_not(copy, account, rung, attack):
    outcome = _outcomes(copy, account, rung)["outcomes"][attack]
    if attack in OPEN.get((rung, account), ()):
        assert outcome == "done", "it is refused after all: take it off the list, and of the page"
    else:
        refused = ("Error", "Interrupted")
        assert outcome.partition(":")[0].endswith(refused), outcome


@pytest.mark.xdist_group("contain")
@pytest.mark.parametrize("rung, account", PLACES)
def test_what_is_honest_works_and_nothing_is_left(copy, account, rung):
    ran = _outcomes(copy, account, rung)
    assert ran["outcomes"][HONEST] == "done"
    assert ran["left"] == []
