"""What is in a release, and what must never be."""

from __future__ import annotations

import ast
import shutil
import stat
import subprocess
import sys
import tomllib

import pytest

from grader.release import PARTS, Part, files_of
from grader.suite.places import ROOT
from shared.assignment import assignment
from staff.tools import leaks, release

# Files of the folders below that students do not get, and why.
WITHHELD = {
    "shared/assignment_json.py": "makes assignment.json, which is in the release",
    "shared/site.py": "reads site.toml, whose facts are in slurm/site.sh",
    "shared/site.toml": "the same",
}
WATCHED = ("olmoe", "shared", "student", "grader/suite", "grader/gpu", "grader/probes",
           "grader/public", "grader/rules")  # fmt: skip


def test_every_file_of_these_folders_is_listed_or_withheld():
    """A new probe that nobody lists would be missing where hand-ins are scored."""
    listed = {source.relative_to(ROOT).as_posix() for source, _, _ in files_of()}
    tracked = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--", *WATCHED],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    if not tracked:
        pytest.skip("this is no git checkout: nobody knows what belongs to it")
    missing = sorted(set(tracked) - listed - WITHHELD.keys())
    assert not missing, (
        f"{', '.join(missing)}: list them in grader/release.py, or here among the withheld"
    )


def test_the_paths_of_the_seed_are_there(built):
    folder, names = built
    for name in (
        *assignment().files,
        *("olmoe/data.py", "olmoe/load.py", "a1/sweep.py", "a1/nsys.sh", "grade/public/test_c1.py"),
        *("slurm/job.sbatch", "Makefile", "handin.py", "README.md", "AGENTS.md", ".gitattributes"),
        *("shared/gpus.toml", "requirements.txt"),
    ):
        assert name in names and (folder / name).is_file()


def test_only_what_is_listed_is_there(built):
    folder, names = built
    there = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    assert there == names
    assert not [p for p in folder.rglob("*") if p.name in leaks.CACHES or p.is_symlink()]


def test_what_lies_around_is_not_taken(built, tmp_path, monkeypatch):
    """The build is made from names: a stray file beside a listed one changes nothing."""
    again = tmp_path / "again"
    again.mkdir()
    assert release.build(again) == built[1]
    for name in built[1]:
        assert (again / name).read_bytes() == (built[0] / name).read_bytes(), name
        mode = stat.S_IMODE((again / name).stat().st_mode)
        assert mode == (0o755 if name.endswith((".sh", ".sbatch")) else 0o644), name


def test_the_stubs_are_there_twice(built):
    folder, _ = built
    for file in assignment().modules.values():
        stub = (folder / file).read_text()
        assert "NotImplementedError" in stub and "SOLUTION" not in stub
        assert (folder / "grade/released" / file).read_text() == stub


def test_no_place_of_a_fact_is_left_empty(built):
    folder, _ = built
    for name in ("README.md", "AGENTS.md", "slurm/site.sh", "slurm/job.sbatch"):
        text = (folder / name).read_text()
        assert not release.PLACEHOLDER.search(text), name
    assert "#SBATCH --partition" not in (folder / "slurm/job.sbatch").read_text()  # no such fact
    assert "#SBATCH --gres=gpu:1" in (folder / "slurm/job.sbatch").read_text()


def test_facts_that_the_site_has_are_filled_in():
    facts = {"slurm_account": "abc", "slurm_batch_partition": "", "course": "X1"}
    text = (
        "#SBATCH --account=@slurm_account@\n#SBATCH --partition=@slurm_batch_partition@\n@course@\n"
    )
    assert release.filled(text, facts, "f") == "#SBATCH --account=abc\nX1\n"
    with pytest.raises(release.ReleaseError, match="f: @nobody@ is no fact"):
        release.filled("@nobody@", facts, "f")


def test_scripts_end_their_lines_with_lf(built):
    folder, names = built
    for name in names:
        if not name.endswith((".safetensors", ".png")):
            assert b"\r" not in (folder / name).read_bytes(), name
    attributes = (folder / ".gitattributes").read_text()
    assert "* text=auto eol=lf" in attributes and "*.safetensors binary" in attributes


def test_the_public_tests_need_nothing_else(built):
    """The release's own Python collects every public test, with nothing of ours on its path."""
    folder, _ = built
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "grade/public", "-p", "no:xdist"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for exercise in assignment().exercises:
        if exercise.kind == "coding":
            assert f"test_c{exercise.number}.py" in done.stdout


def test_an_import_that_is_not_met_is_named(built, tmp_path):
    folder = tmp_path / "release"
    shutil.copytree(built[0], folder)
    test = folder / "grade/public/test_c1.py"
    test.write_text(
        "from ..judge import one\nfrom ..suite.secret import x\nimport staff.olmoe\n"
        "from . import nothing, test_c2\nimport olmoe.data, torch\nfrom shared.site import site\n"
    )
    found = release.unmet_imports(folder, built[1])
    wanted = ["grade.judge", "grade.suite.secret", "staff.olmoe", "grade.public.nothing"]
    assert [line.split(": ")[1] for line in found] == [*wanted, "shared.site"]
    assert found[0] == "  grade/public/test_c1.py, line 1: grade.judge"


# ---- Leaks --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def birds():
    return leaks.canaries(ROOT)


def _lines_of_regions() -> list[tuple[str, str]]:
    """(file, line) of every line of a solution that is long enough to be known again."""
    given, found = set(), []
    for file in assignment().modules.values():
        lines = (ROOT / "staff" / file).read_text().splitlines()
        inside = {n for r in leaks.read_regions("\n".join(lines), file)
                  for n in range(r.begin, r.end + 1)}  # fmt: skip
        given |= {leaks.normal(line) for n, line in enumerate(lines, 1) if n not in inside}
        found += [(file, leaks.normal(lines[n - 1])) for n in inside]
    return [
        (f, s)
        for f, s in found
        if len(s) >= leaks.TRIVIAL and s not in given | leaks.ALLOWED.keys()
    ]


def test_any_line_of_a_solution_is_found(birds):
    lines = _lines_of_regions()
    assert len(lines) > 60
    for file, line in lines:
        hidden = f"x = 1\n        {line}\n".encode()
        assert leaks.leaks_in("a1/stages.py", hidden, birds), f"staff/{file}: {line}"


@pytest.mark.parametrize(
    "file",
    [
        "staff/tools/new_term.py",
        "staff/truth/measure.py",
        "grader/hidden/conftest.py",
        "grader/judge/intake.py",
        "grader/judge/solver.py",
        "grader/staff_rules/digits.py",
        "grader/solver/zygote.py",
        "grader/proof/wrong/c1_counts_the_warmup.py",
        "grader/proof/right/c7_class_of_hooks.py",
        "grader/score.py",
        "grader/release.py",
    ],
)
def test_any_staff_file_is_found(birds, built, tmp_path, file):
    """Under whatever name it has come into a release."""
    folder = tmp_path / "release"
    shutil.copytree(built[0], folder)
    shutil.copyfile(ROOT / file, folder / "a1" / "regimes.py")
    found = leaks.leaks(folder, built[1], birds)
    assert found and all(leak.file == "a1/regimes.py" for leak in found)


def test_a_row_of_the_hidden_truth_is_found(birds):
    tables = sorted((ROOT / "staff" / "truth").glob("*/a1_truth_hidden.csv"))
    if not tables:
        pytest.skip("no truth has been measured yet")
    public = set()
    for table in tables:
        other = table.with_name("a1_truth.csv")
        public |= set(other.read_text().splitlines()) if other.is_file() else set()
        rows = [row for row in table.read_text().splitlines()[1:] if row not in public]
        assert rows
        for row in rows:
            assert leaks.leaks_in("grade/a1_truth.csv", f"{row}\n".encode(), birds), row


PLANTED = {
    "__pycache__/x.cpython-311.pyc": b"\x00",
    "a1/stages.pyc": b"\x00",
    "a1/notes.py": b"",
    ".pytest_cache/README.md": b"",
    ".git/config": b"",
    "results/a1/gemm.csv": b"1,2\n",
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_has_no_place_in_a_release_is_found(birds, built, tmp_path, name):
    folder = tmp_path / "release"
    shutil.copytree(built[0], folder)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(PLANTED[name])
    found = leaks.leaks(folder, built[1], birds)
    assert any(leak.file.startswith(name.split("/")[0]) for leak in found)


def test_a_link_is_found(birds, built, tmp_path):
    folder = tmp_path / "release"
    shutil.copytree(built[0], folder)
    (folder / "a1/stages.py").unlink()
    (folder / "a1/stages.py").symlink_to(ROOT / "staff/olmoe/train.py")
    assert [str(leak) for leak in leaks.leaks(folder, built[1], birds)] == ["a1/stages.py: a link"]


def test_the_secret_is_found_even_in_a_binary_file(birds):
    secret = tomllib.loads((ROOT / "staff/term.toml").read_text())["secret"].encode()
    data = b"\x00\xff\n\x00" + secret + b"\x00"
    assert [leak.what for leak in leaks.leaks_in("x.safetensors", data, birds)] == [
        "the term's secret"
    ]


def test_the_release_as_it_is_holds_no_leak(birds, built):
    assert leaks.leaks(built[0], built[1], birds) == []


def test_every_exception_is_still_needed():
    """A line that is allowed, and that nothing has any more, would hide the next leak."""
    staff, public = set(), set()
    released = {source for source, _, _ in files_of()}
    solved = [ROOT / "staff" / file for file in assignment().modules.values()]
    for path in (*leaks.private_files(ROOT), *solved, *released):
        if path.suffix in leaks.CODE + leaks.TEXT and path.is_file():
            lines = set(map(leaks.normal, path.read_text(encoding="utf-8").splitlines()))
            (public if path in released else staff).update(lines)
    assert leaks.ALLOWED.keys() <= staff & public


def test_a_leak_leaves_nothing_behind(tmp_path, monkeypatch, capsys):
    """The table says that a staff file is public: the build stops, and DIR is not made."""
    monkeypatch.setattr(
        release.build, "__defaults__", ((*PARTS, Part("staff/tools", "a1", "new_term.py")),)
    )
    assert release.main([str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "would leak" in said and "a1/new_term.py" in said
    assert not (tmp_path / "out").exists()


def test_a_file_that_the_table_lists_and_nobody_has(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        release.build, "__defaults__", ((*PARTS, Part("student/a1", "a1", "nobody.py")),)
    )
    assert release.main([str(tmp_path / "out")]) == 1
    assert "student/a1/nobody.py does not exist" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_tools_do_not_import_the_solution():
    """Nothing of the solved files runs while a release is made."""
    for file in ("release.py", "leaks.py"):
        tree = ast.parse((ROOT / "staff/tools" / file).read_text())
        names = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        assert not [n for n in names if n and n.startswith(("olmoe", "a1"))]
