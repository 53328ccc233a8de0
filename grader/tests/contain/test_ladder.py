"""Which rung is chosen, and in what words the others are refused."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shared.assignment import assignment

from ...judge import contain
from ...judge.contain import cell, folders, ladder
from ...suite.places import ROOT

LIMITS = assignment().limits


@pytest.fixture
def staged(tmp_path):
    ladder.lay_out_solver(tmp_path / "staged")
    return tmp_path / "staged"


def test_the_first_rung_that_works_is_taken(monkeypatch, staged):
    def fake(rung, _staged):
        refused = rung in (contain.BUBBLEWRAP, contain.LANDLOCK)
        return contain.Found(rung, "not here" if refused else "")

    monkeypatch.setattr(ladder, "attempt", fake)
    assert contain.strongest(staged) is contain.OWN_USER_LANDLOCK
    assert contain.strongest(staged, "landlock") is contain.NONE
    monkeypatch.setattr(ladder, "attempt", lambda rung, _: contain.Found(rung, "not here"))
    with pytest.raises(RuntimeError, match="own-user: not here"):
        contain.strongest(staged)


def test_a_rung_that_nobody_knows_is_refused(staged):
    with pytest.raises(
        ValueError, match="bubblewarp: no such rung; there are bubblewrap, own-user"
    ):
        contain.strongest(staged, "bubblewarp")


def test_a_rung_that_does_not_start_is_not_taken_and_says_what_it_heard(staged):
    broken = dataclasses.replace(
        contain.BUBBLEWRAP, around=lambda _: ["sh", "-c", "echo no namespaces >&2; exit 1"],
        lacks=lambda _: "",
    )  # fmt: skip
    assert "no namespaces" in contain.attempt(broken, staged).why_not
    absent = dataclasses.replace(broken, around=lambda _: ["/nowhere/bwrap"])
    assert "/nowhere/bwrap" in contain.attempt(absent, staged).why_not


def test_a_rung_that_shows_what_it_promises_to_hide_is_not_taken(tmp_path, staged):
    (tmp_path / "secret").mkdir()
    leaky = dataclasses.replace(contain.NONE, hides_staff_files=True)
    found = contain.attempt(leaky, staged, secret=(tmp_path / "secret",))
    assert str(tmp_path / "secret") in found.why_not


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give away an account")
@pytest.mark.parametrize("mode, hidden", [(0o755, False), (0o700, True)])
def test_an_account_of_its_own_hides_what_others_may_not_read(monkeypatch, mode, hidden):
    for name, value in {"executable": "/usr/bin/python3", "prefix": "/usr"}.items():
        monkeypatch.setattr(sys, name, value)
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    with cell.tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        staged, secret = Path(folder) / "staged", Path(folder) / "secret"
        ladder.lay_out_solver(staged)
        secret.mkdir()
        secret.chmod(mode)
        found = contain.attempt(contain.OWN_USER, staged, secret=(secret,))
    assert found.works, found.why_not
    assert found.rung.hides_staff_files is hidden
    assert (str(secret) in found.rung.why_not_hidden) is not hidden


def test_a_python_that_others_cannot_reach_is_named(tmp_path):
    home = tmp_path / "home"
    (home / "env").mkdir(parents=True)
    (home / "env" / "python").touch()
    (tmp_path / "link").symlink_to(home / "env" / "python")
    home.chmod(0o700)
    said = folders.closed_to_others([tmp_path / "link"])
    assert "is closed to other users" in said and "chmod o+x" in said
    assert folders.closed_to_others([Path("/usr/bin/env")]) == ""


def test_an_environment_around_the_repository_would_expose_it(monkeypatch):
    assert folders.exposing() == ""
    monkeypatch.setattr(sys, "prefix", str(ROOT))
    assert f"the solver has to read {ROOT}" in folders.exposing()
    assert contain.BUBBLEWRAP.lacks(ROOT) and contain.OWN_USER_LANDLOCK.lacks(ROOT)


@pytest.mark.parametrize("rung", contain.LADDER, ids=lambda rung: rung.name)
def test_nothing_readable_holds_a_secret(staged, rung):
    made = contain.Cell(contain.NONE, staged, LIMITS)
    try:
        for path in made.shield().readable:
            for secret in folders.SECRET:
                assert Path(path).resolve() not in (secret, *secret.parents)
    finally:
        made.close()
    assert rung.says and not (rung.hides_staff_files and rung.why_not_hidden)


def test_the_environment_is_a_short_list(staged, monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "secret")
    made = contain.Cell(contain.NONE, staged, LIMITS)
    environment = made.environment()
    made.close()
    assert "secret" not in environment.values() and len(environment) < 15
    assert environment["TMPDIR"] == made.temp


def test_a_cell_leaves_no_folder(staged):
    made = contain.Cell(contain.NONE, staged, LIMITS)
    closed = Path(made.temp) / "a" / "closed"
    closed.mkdir(parents=True)
    closed.chmod(0)
    made.close()
    made.close()  # twice is no mistake: a suite's process may have done it
    assert [p.name for p in staged.parent.iterdir()] == ["staged"]


def test_bytes_and_files_are_counted_up_to_the_cap(staged):
    limits = dataclasses.replace(LIMITS, written_files=20)
    made = contain.Cell(contain.NONE, staged, limits)
    folder = Path(made.temp) / "folder"
    folder.mkdir()
    for i in range(10):
        (folder / str(i)).write_bytes(bytes(8192))
    assert made.written(0) == (10 * 8192 + folder.stat().st_blocks * 512, 11)
    for i in range(100):
        (folder / f"more-{i}").touch()
    assert made.written(0)[1] == 21
    made.close()


def test_two_cells_have_two_accounts():
    uids = {cell.free_uid() for _ in range(3)}
    assert uids <= set(cell.OWN_UIDS)
    with subprocess.Popen(["sleep", "60"]) as running:
        assert running.pid in cell.processes_of(os.getuid())
        running.kill()


def test_the_table_has_every_rung_and_a_reason_for_each_that_is_missing():
    done = subprocess.run(
        [sys.executable, "-m", "grader.judge.contain"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for rung in contain.LADDER:
        (line,) = [row for row in done.stdout.splitlines() if row.startswith(f"{rung.name} ")]
        assert any(word in line for word in ("CHOSEN", "works", "not here"))
        assert len(line.split()) > 3
