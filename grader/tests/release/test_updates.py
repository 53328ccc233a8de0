"""A correction reaches a student who has finished, with real git, and costs no work."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from grader.rules.experiment import load
from grader.rules.rule import complaints
from grader.suite.places import ROOT
from shared.assignment import assignment
from staff.tools import release

HONEST = sorted((ROOT / "grader/tests/rules/honest").glob("*"))[0]
WHO = ("Ada", "ada@example.org")


@pytest.fixture(autouse=True)
def identity(monkeypatch, tmp_path):
    """Git as on a machine that nobody has configured, but for a name."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for kind in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{kind}_NAME", WHO[0])
        monkeypatch.setenv(f"GIT_{kind}_EMAIL", WHO[1])


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"git {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def course(built, tmp_path) -> Path:
    """The course's repository, with the first release in it."""
    folder = tmp_path / "course"
    assert release.deliver(*built, folder, "").startswith("wrote")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "First release")
    assert git(folder, "ls-files").splitlines() == built[1]
    return folder


@pytest.fixture
def finished(course, tmp_path) -> Path:
    """The clone of a student who has done everything, and committed it."""
    clone = tmp_path / "my clone"
    git(tmp_path, "clone", "--quiet", str(course), str(clone))
    for file in assignment().modules.values():
        solved = (ROOT / "staff" / file).read_text().splitlines(keepends=True)
        unmarked = [line for line in solved if "SOLUTION" not in line]
        (clone / file).write_text("".join(unmarked))
    answers = clone / "a1/answers.md"
    answers.write_text(answers.read_text().replace("_Your answer_", "At M = 64, 24 TFLOP/s."))
    shutil.copytree(HONEST, clone / "results/a1")
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "All done")
    return clone


@pytest.fixture
def correct(built, course, tmp_path):
    """correct({file: new text}) commits the next release to the course's repository."""

    def commit(texts: dict[str, str], without: tuple[str, ...] = ()) -> str:
        folder = tmp_path / "corrected"
        shutil.copytree(built[0], folder)
        for name, text in texts.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        names = sorted({*built[1], *texts} - {*without})
        return release.deliver(folder, names, course, "A correction")

    return commit


def last_docstring_lines(source: str, functions: tuple[str, ...]) -> list[int]:
    """The last line of text (from 0) of each function's docstring: next to what students write."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name in functions and ast.get_docstring(node):
            doc = node.body[0]
            found.append(doc.end_lineno - 2 if doc.end_lineno > doc.lineno else doc.lineno - 1)
    return found


def test_corrections_merge_into_finished_work(built, course, finished, correct):
    """To a test, to a script, and to the docstring of every stub, on its last line."""
    test, script = "grade/public/test_c1.py", "a1/stages.py"
    texts = {name: (built[0] / name).read_text() + "# corrected\n" for name in (test, script)}
    changed = 0
    for file in assignment().modules.values():
        names = tuple(
            f.split(".")[-1]
            for e in assignment().of_kind("coding")
            for f in e.implements
            if e.file == file and f != "Olmoe.forward"  # of which students write one line
        )
        lines = (built[0] / file).read_text().splitlines(keepends=True)
        for n in last_docstring_lines("".join(lines), names):
            if '"""' not in lines[n]:
                lines[n] = lines[n].rstrip("\n") + " (corrected)\n"
                changed += 1
        lines[0] = lines[0].replace('"""', '"""Corrected. ', 1)
        texts[file] = texts[f"grade/released/{file}"] = "".join(lines)
    assert changed > 8
    said = correct(texts)
    assert "A correction" in said and git(course, "rev-list", "--count", "HEAD").strip() == "2"
    assert git(course, "status", "--porcelain") == ""

    before = {f: (finished / f).read_text() for f in assignment().files}
    git(finished, "pull", "--no-rebase", "--no-edit", "--quiet")
    assert git(finished, "status", "--porcelain") == ""
    assert (finished / test).read_text().endswith("# corrected\n")
    assert (finished / script).read_text().endswith("# corrected\n")
    for file in assignment().modules.values():
        now = (finished / file).read_text()
        assert now.startswith('"""Corrected. ')
        assert now.replace(" (corrected)", "").replace("Corrected. ", "", 1) == before[file]
        assert "NotImplementedError" not in now
    assert (finished / "a1/answers.md").read_text() == before["a1/answers.md"]
    assert (finished / "results/a1").is_dir()


def test_files_come_and_go(course, finished, correct):
    correct({"a1/extra.py": "x = 1\n"}, without=("a1/memory_curve.py",))
    git(finished, "pull", "--no-rebase", "--no-edit", "--quiet")
    assert (finished / "a1/extra.py").is_file()
    assert not (finished / "a1/memory_curve.py").exists()


def test_nothing_new_is_no_commit(course, correct):
    assert "nothing to commit" in correct({})
    assert git(course, "rev-list", "--count", "HEAD").strip() == "1"


def test_a_commit_that_fails_leaves_the_checkout_as_it_was(course, correct):
    hook = course / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\necho no commits today >&2; exit 1\n")
    hook.chmod(0o755)
    with pytest.raises(release.ReleaseError, match="no commits today"):
        correct({"a1/extra.py": "x = 1\n", "Makefile": "new\n"}, without=("a1/memory_curve.py",))
    assert git(course, "status", "--porcelain") == ""
    assert (course / "a1/memory_curve.py").is_file() and not (course / "a1/extra.py").exists()


def test_where_no_release_belongs(built, course, tmp_path):
    def refused(folder: Path) -> str:
        with pytest.raises(release.ReleaseError) as error:
            release.deliver(*built, folder, "")
        return str(error.value)

    (course / "Makefile").write_text("mine\n")
    assert "not committed" in refused(course)
    git(course, "checkout", "--quiet", "--", "Makefile")
    (course / "stray.txt").write_text("x")
    assert "not committed" in refused(course)
    (course / "stray.txt").unlink()
    assert "neither empty nor a git checkout" in refused(course / "a1")

    other = tmp_path / "other"
    other.mkdir()
    (other / "README").write_text("x")
    assert "neither empty nor" in refused(other)
    git(other, "init", "--quiet")
    git(other, "add", "--all")
    git(other, "commit", "--quiet", "--message", "x")
    assert "a checkout of something else" in refused(other)
    assert (other / "README").read_text() == "x" and not (other / "Makefile").exists()


def test_a_history_with_the_staffs_files_is_not_built_upon(built, course):
    (course / "staff").mkdir()
    shutil.copyfile(ROOT / "staff/tools/new_term.py", course / "staff/new_term.py")
    git(course, "add", "--all")
    git(course, "commit", "--quiet", "--message", "oh no")
    git(course, "rm", "--quiet", "-r", "staff")
    git(course, "commit", "--quiet", "--message", "gone, but not from the history")
    with pytest.raises(release.ReleaseError, match="may not be published"):
        release.deliver(*built, course, "")


def test_results_of_an_earlier_release_stay_valid(tmp_path):
    """Measured with scripts that have been corrected since, as their sidecars say."""
    folder = tmp_path / "a1"
    shutil.copytree(HONEST, folder)
    for sidecar in folder.glob("*.csv.json"):
        content = json.loads(sidecar.read_text())
        for run in content["runs"]:
            run["release"] = "2026.9"
            run["code"] = {name: "0" * 64 for name in run["code"]}
        sidecar.write_text(json.dumps(content))
    now, then = load(HONEST), load(folder)
    for exercise in assignment().of_kind("experiment"):
        for group in ("completeness", "bounds", "bookkeeping", "order") if exercise.points else ():
            assert complaints(then, exercise.key, group) == complaints(now, exercise.key, group)
