"""Packing: what goes in, what is said about the rest, and that nothing is ever half written."""

from __future__ import annotations

import ast
import errno
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import handin
from shared import assignment_json
from shared.assignment import assignment
from shared.completeness import unanswered

from ..judge.intake import open_handin
from .judge.samples import sample_files, sample_table

ROOT = Path(__file__).resolve().parents[2]
TABLE = sample_table()
DONE = {
    "pkg/ops.py": b"def first():\n    return 1\n\n\ndef second():\n    return 2\n",
    "p9/model.py": b"class Net:\n    def forward(self):\n        return 1\n",
}


@pytest.fixture
def clone(tmp_path):
    """A student's finished clone of the sample assignment."""
    root = tmp_path / "clone"
    put(root, sample_files() | DONE)
    facts = json.dumps(assignment_json.facts(TABLE)).encode()
    put(root, {"shared/assignment.json": facts, "handin.py": b"", "README.md": b"x"})
    return root


def put(root: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


@pytest.fixture
def hand_in(clone, tmp_path, capsys):
    """Runs handin.py on the clone: what it said, its exit code, and what it wrote."""

    def hand_in(*options: str, out: Path = tmp_path / "out", code: int = handin.EXIT_OK):
        arguments = ["--root", str(clone), "--output", str(out), "--student", "ab123", *options]
        assert handin.main(arguments) == code
        said = capsys.readouterr()
        written = sorted(out.iterdir()) if out.is_dir() else []
        return said.out if code == handin.EXIT_OK else said.err, written

    return hand_in


def members(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar}


# ---- What goes in -------------------------------------------------------------------------------


def test_a_finished_hand_in_is_packed_without_remarks(clone, hand_in):
    said, (archive,) = hand_in()
    first, second = said.splitlines()
    assert re.fullmatch(rf"Handed in 4 files \(0\.0 MB\) as {re.escape(str(archive))}", first)
    assert "again at any time" in second
    assert re.fullmatch(r"\d{8}-\d{6}\.tar\.gz", archive.name)
    packed = members(archive)
    manifest = json.loads(packed.pop("manifest.json"))
    assert packed == sample_files() | DONE
    assert {f["path"]: f["sha256"] for f in manifest["files"]} == {
        name: hashlib.sha256(data).hexdigest() for name, data in packed.items()
    }
    assert (manifest["student"], manifest["assignment"]) == ("ab123", "p9")
    assert (manifest["release"], manifest["incomplete"]) == ("7", [])
    assert datetime.fromisoformat(manifest["packed_at"]).utcoffset() == timedelta(0)


def test_what_was_packed_is_what_the_grader_reads(hand_in):
    _, (archive,) = hand_in()
    read = open_handin(archive, TABLE)
    assert (read.problems, read.notes) == ([], [])
    assert read.files == sample_files() | DONE and read.student == "ab123"


def test_only_what_is_allowed_goes_in(clone, hand_in):
    put(
        clone,
        dict.fromkeys(
            [
                *("results/p9/run.nsys-rep", "results/p9/mem.pickle", "results/p9/._t.csv"),
                *("results/p9/.DS_Store", "results/p9/__MACOSX/t.csv", "results/p9/old/t.csv"),
                *("p9/challenges/fast.py", "p9/challenges/__pycache__/fast.pyc"),
                *("p9/challenges/__init__.py", "p9/extra.py", ".venv/lib/x.py", "results/p9/t.png"),
            ],
            b"x = 1\n",
        ),
    )
    said, (archive,) = hand_in()
    assert set(members(archive)) == {
        *(*sample_files(), *DONE, "manifest.json", "p9/challenges/fast.py", "results/p9/t.png")
    }
    assert "Handed in 6 files" in said


def test_modes_owner_and_order_do_not_depend_on_the_machine(clone, hand_in, monkeypatch):
    monkeypatch.setattr(handin.time, "time", lambda: 1.8e9)
    (clone / "pkg/ops.py").chmod(0o400)
    (clone / "results/p9").chmod(0o555)
    try:
        _, (archive,) = hand_in()
    finally:
        (clone / "results/p9").chmod(0o755)
    with tarfile.open(archive) as tar:
        entries = tar.getmembers()
    assert [e.name for e in entries] == ["manifest.json", *sorted(sample_files())]
    assert {(e.mode, e.uid, e.gid, e.uname, e.gname) for e in entries} == {(0o644, 0, 0, "", "")}


def test_line_ends_and_byte_order_marks_survive(clone, hand_in):
    odd = {name: b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n") for name, data in DONE.items()}
    odd["p9/answers.md"] = "\ufeffName: A\r\n\r\n## Question 1\r\n\r\nBecause.\r\n".encode()
    put(clone, odd)
    said, (archive,) = hand_in()
    assert len(said.splitlines()) == 2, said
    assert odd.items() <= members(archive).items()


def test_the_overlay_decides_whose_files_are_taken(clone, hand_in, tmp_path):
    put(clone / "staff", {"pkg/ops.py": b"def first(): 1\ndef second(): 2\n"})
    put(tmp_path / "own", {"t.csv": b"a\n9\n"})
    _, (archive,) = hand_in("--overlay", "staff:.", "--results", str(tmp_path / "own"))
    packed = members(archive)
    assert packed["pkg/ops.py"].startswith(b"def first(): 1")
    assert packed["p9/model.py"] == DONE["p9/model.py"]
    assert packed["results/p9/t.csv"] == b"a\n9\n"


def test_a_dry_run_lists_and_writes_nothing(clone, hand_in):
    put(clone, {"results/p9/run.nsys-rep": b"x"})
    said, written = hand_in("--dry-run")
    assert written == []
    assert all(name in said for name in sample_files())
    assert "results/p9/run.nsys-rep" in said and "nothing was written" in said


# ---- What is left out, by name ------------------------------------------------------------------


def test_what_is_too_large_is_left_out_with_its_size(clone, hand_in):
    (clone / "results/p9/big.csv").touch()
    os.truncate(clone / "results/p9/big.csv", 3_100_000_000)
    said, (archive,) = hand_in()
    assert "results/p9/big.csv has 3.1 GB; a file of its kind may have 50.0 kB" in said
    assert set(members(archive)) == {*sample_files(), "manifest.json"}
    assert json.loads(members(archive)["manifest.json"])["left_out"][0]["path"].endswith("big.csv")


def test_all_together_and_their_number_have_limits(clone, hand_in):
    put(clone, {f"results/p9/{n}.csv": bytes(45_000) for n in range(6)})
    said, (archive,) = hand_in()
    assert "all together would exceed" in said
    put(clone, {f"results/p9/{n}.csv": b"1" for n in range(60)})
    said, (_, archive) = hand_in()
    assert len(members(archive)) == TABLE.handin.max_entries and "one too many" in said
    assert not [p for p in open_handin(archive, TABLE).problems if "used up" in p or "at most" in p]


def test_links_are_followed_only_within_the_clone(clone, hand_in, tmp_path):
    put(tmp_path, {"private.csv": b"secret"})
    folder = clone / "results/p9"
    (folder / "out.csv").symlink_to(tmp_path / "private.csv")
    (folder / "in.csv").symlink_to("t.csv")
    (folder / "gone.csv").symlink_to("nowhere.csv")
    (folder / "loop.csv").symlink_to("loop.csv")
    said, (archive,) = hand_in()
    assert members(archive)["results/p9/in.csv"] == b"m,ms\n1,2.0\n"
    assert b"secret" not in members(archive).values()
    for name, why in (("out", "outside your clone"), ("gone", "nothing"), ("loop", "link")):
        assert re.search(rf"results/p9/{name}\.csv .*{why}", said), said


def test_results_may_be_kept_elsewhere_by_a_link_to_their_folder(clone, hand_in, tmp_path):
    (clone / "results").rename(tmp_path / "scratch")
    (clone / "results").symlink_to(tmp_path / "scratch")
    assert "results/p9/t.csv" in members(hand_in()[1][0])


def test_pipes_and_folders_are_not_read(clone, hand_in):
    os.mkfifo(clone / "results/p9/pipe.csv")
    (clone / "results/p9/folder.csv").mkdir()
    said, _ = hand_in()
    assert "pipe.csv is not a file" in said and "folder.csv is not a file" in said


def test_a_file_that_may_not_be_read_is_named(clone, hand_in, monkeypatch):
    opened = Path.open

    def refuse(path, *args, **kwargs):
        if path.name == "t.csv":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refuse)
    said, (archive,) = hand_in()
    assert "results/p9/t.csv cannot be read (Permission denied)" in said
    assert "pkg/ops.py" in members(archive)


def test_odd_names_are_named_and_left_out(clone, hand_in):
    put(clone, {"results/p9/a\nb.csv": b"1"})
    (clone / os.fsdecode(b"results/p9/\xff.csv")).write_bytes(b"1")
    put(clone, {"results/p9/T.csv": b"1"})
    said, (archive,) = hand_in()
    assert said.count("unusual characters") == 2
    assert "results/p9/T.csv and results/p9/t.csv differ in case only" in said
    assert len(members(archive)) == 6


# ---- What is not complete -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, data, words",
    [
        ("pkg/ops.py", None, "pkg/ops.py is missing"),
        (
            "pkg/ops.py",
            b"def first():\n    raise NotImplementedError\n\ndef second():\n"
            b"    raise NotImplementedError('later')\n",
            "Coding 1: first, second in pkg/ops.py: not implemented yet",
        ),
        ("pkg/ops.py", b"def first():\n    return 1\n", "Coding 1: pkg/ops.py has no second"),
        (
            "p9/model.py",
            b"class Net:\n    def forward(self, r):\n        if r:\n"
            b"            raise NotImplementedError\n",
            "Coding 2: Net.forward in p9/model.py: not implemented yet",
        ),
        ("pkg/ops.py", b"a = 1\ndef first(:\n", "pkg/ops.py, line 2: Python "),
        ("pkg/ops.py", b"if 1:\n\ta = 1\n        b = 2\n", "pkg/ops.py, line 3: Python "),
        ("pkg/ops.py", b"a = 1\nb = '\0'\n", "pkg/ops.py, line "),
        ("pkg/ops.py", b"a = 1\n<<<<<<< HEAD\nb\n", "pkg/ops.py, line 2: a merge conflict"),
        ("pkg/ops.py", b"a = 1\n=======\nb\n", "pkg/ops.py, line 2: a merge conflict"),
        ("pkg/ops.py", b"a = 1\r\n>>>>>>> x\r\n", "pkg/ops.py, line 2: a merge conflict"),
        ("pkg/ops.py", b"x = " + b"(" * 5000, "pkg/ops.py, line 1: Python "),
        ("results/p9/t.csv", b"a\n=======\n", "results/p9/t.csv, line 2: a merge conflict"),
        ("results/p9/t.csv", None, "Experiment 1: not in results/p9: t.csv (run python p9/run.py)"),
        ("results/p9/t.csv", b"\n", "Experiment 1: empty: t.csv (run python p9/run.py)"),
        (
            "p9/answers.md",
            b"Name: A\n\n## Question 1\n\n_Your answer_\n",
            "Question 1 has no answer",
        ),
    ],
)
def test_what_is_not_complete_is_said_and_handed_in_all_the_same(clone, hand_in, name, data, words):
    if data is None:
        (clone / name).unlink()
    else:
        put(clone, {name: data})
    said, (archive,) = hand_in()
    assert said.count("  - ") == 1 and words in said, said
    assert members(archive).get(name) == data
    assert words in json.loads(members(archive)["manifest.json"])["incomplete"][0]


@pytest.mark.parametrize(
    "source",
    [
        b"def other():\n    raise NotImplementedError\n\nfirst = second = lambda: 1\n",
        b"from pkg.fast import first, go as second\n",
        b'"""Title\n=======\n"""\nasync def first(): "raise NotImplementedError"\nsecond = 1\n',
        b"if True:\n    def first(): pass\nelse:\n    first = 1\nclass second: pass\n",
        b"import re\nfirst = second = re.compile('\\d')\n",
    ],
)
def test_a_finished_file_of_any_style_is_not_accused(clone, hand_in, source):
    put(clone, {"pkg/ops.py": source})
    assert len(hand_in()[0].splitlines()) == 2


TEMPLATE = """\
# Answers

Name: {name}

## Question 1: three regimes

<!-- ## Question 9 -->
> What is the question?

{one}

## Question 2

### (a)

{two_a}

### (b)

{two_b}

## AI tools

{tools}

## Challenges (optional)
"""
ANSWERED = dict(name="B", one="It is.", two_a="| m |\n|---|\n| 5 |", two_b="So.", tools="None.")


@pytest.mark.parametrize(
    "empty, words",
    [
        ({}, []),
        ({"name": ""}, ["your name is missing"]),
        ({"name": "_your name_"}, ["your name is missing"]),
        ({"one": ""}, ["Question 1 has no answer yet"]),
        ({"one": "*Your answer here.*"}, ["Question 1 has no answer yet"]),
        ({"one": "TODO"}, ["Question 1 has no answer yet"]),
        ({"one": "| | |\n|---|---|\n| | |"}, ["Question 1 has no answer yet"]),
        ({"one": "<!-- said\nnothing -->"}, ["Question 1 has no answer yet"]),
        ({"two_a": ""}, ["Question 2: no answer under (a)"]),
        ({"two_b": "_Your answer_"}, ["Question 2: no answer under (b)"]),
        ({"two_a": "", "two_b": ""}, ["Question 2 has no answer yet"]),
        ({"tools": ""}, ["nothing stands under `AI tools`"]),
        ({"one": "```\n## not a heading\n```"}, []),
        ({"one": "42"}, []),
    ],
)
def test_a_question_without_an_answer_is_named(empty, words):
    text = TEMPLATE.format(**(ANSWERED | empty))
    for ends in ("\n", "\r\n"):
        assert [
            f[: len(w)]
            for f, w in zip(unanswered(text.replace("\n", ends), [1, 2]), words, strict=True)
        ] == words


def test_a_question_whose_heading_is_gone_is_named():
    assert unanswered("**Name:** C\n", [3]) == ["there is no heading `## Question 3`"]


# ---- Whatever goes wrong ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        ("fsync", errno.ENOSPC, "no space is left"),
        ("fsync", errno.EDQUOT, "no space is left"),
        ("link", errno.EROFS, "you may not write"),
        ("link", errno.EACCES, "you may not write"),
        ("fsync", errno.EIO, "cannot be written"),
    ],
)
def test_a_failure_to_write_is_one_line_and_leaves_nothing(clone, hand_in, monkeypatch, fault):
    function, code, words = fault
    before = {p: p.read_bytes() for p in clone.rglob("*") if p.is_file()}

    def fail(*args):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(handin.os, function, fail)
    said, written = hand_in(code=handin.EXIT_NOT_WRITTEN)
    assert words in said and len(said.splitlines()) == 1
    assert written == []
    assert {p: p.read_bytes() for p in clone.rglob("*") if p.is_file()} == before


def test_a_folder_that_cannot_be_made_is_named(clone, hand_in, tmp_path):
    put(tmp_path, {"file": b""})
    said, _ = hand_in(out=tmp_path / "file" / "out", code=handin.EXIT_NOT_WRITTEN)
    assert str(tmp_path / "file") in said and len(said.splitlines()) == 1


def test_an_archive_that_reads_back_differently_is_not_handed_in(clone, hand_in, monkeypatch):
    write = handin._write

    def corrupt(file, files, now_s):
        write(file, files | {"pkg/ops.py": b"changed"}, now_s)

    monkeypatch.setattr(handin, "_write", corrupt)
    said, written = hand_in(code=handin.EXIT_NOT_WRITTEN)
    assert "differs from your files in pkg/ops.py" in said and written == []
    monkeypatch.setattr(handin, "_write", lambda file, files, now_s: file.write(b"\x1f\x8b"))
    said, written = hand_in(code=handin.EXIT_NOT_WRITTEN)
    assert "read back" in said and written == []


def test_two_hand_ins_within_a_second_both_stay(clone, hand_in, monkeypatch):
    clock = [1_800_000_000.0]
    monkeypatch.setattr(handin.time, "sleep", lambda s: clock.__setitem__(0, clock[0] + s))
    real = time.gmtime
    monkeypatch.setattr(handin.time, "gmtime", lambda *_: real(int(clock[0])))
    _, (first,) = hand_in()
    content = first.read_bytes()
    _, both = hand_in()
    assert len(both) == 2 and both[0] == first and first.read_bytes() == content


def test_a_file_system_without_hard_links_will_do(clone, hand_in, monkeypatch):
    def fail(*args):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(handin.os, "link", fail)
    _, (archive,) = hand_in()
    assert "pkg/ops.py" in members(archive)


@pytest.mark.parametrize("when", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(clone, tmp_path, when):
    out = tmp_path / "out"
    interrupted = (
        "import handin, os, signal, runpy, sys\n"
        f"handin.check_archive = lambda *a: os.kill(os.getpid(), {int(when)}) or signal.pause()\n"
        f"signal.signal({int(when)}, handin._interrupt)\n"
        f"sys.exit(handin.main(['--root', {str(clone)!r}, '--output', {str(out)!r}]))\n"
    )
    command = [sys.executable, "-c", interrupted]
    done = subprocess.run(
        command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == handin.EXIT_INTERRUPTED
    assert len(done.stderr.splitlines()) == 1 and "Interrupted" in done.stderr
    assert list(out.iterdir()) == []


def test_what_a_killed_run_left_is_removed_later(clone, hand_in, tmp_path):
    put(tmp_path / "out", {".handin-0.part": b"half", ".handin-1.part": b"half"})
    os.utime(tmp_path / "out/.handin-0.part", (0, 0))
    _, written = hand_in()
    assert [p.name for p in written if p.name.startswith(".")] == [".handin-1.part"]


def test_a_closed_pipe_does_not_stop_a_hand_in(clone, tmp_path):
    (clone / "pkg/ops.py").unlink()
    command = [sys.executable, ROOT / "handin.py", "--root", clone, "--output", tmp_path / "out"]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            command, check=False, stdout=writer, stderr=subprocess.PIPE, timeout=60
        )
    finally:
        os.close(writer)
    assert done.returncode == handin.EXIT_OK and done.stderr == b""
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_the_wrong_folder_is_said_to_be_wrong(clone, hand_in, capsys):
    for name in sample_files():
        (clone / name).unlink()
    assert "run this in your clone" in hand_in(code=handin.EXIT_NOT_WRITTEN)[0]
    (clone / "shared/assignment.json").write_bytes(b"{")
    assert "git checkout" in hand_in(code=handin.EXIT_NOT_WRITTEN)[0]
    (clone / "shared/assignment.json").unlink()
    assert "run this in your clone" in hand_in(code=handin.EXIT_NOT_WRITTEN)[0]
    with pytest.raises(SystemExit) as exit_:
        handin.main(["--surprise"])
    assert exit_.value.code == handin.EXIT_USAGE


# ---- In this repository --------------------------------------------------------------------------


def test_the_facts_are_those_of_the_table():
    text = assignment_json.text(assignment())
    message = "shared/assignment.json is stale: python -m shared.assignment_json"
    assert assignment_json.FILE.read_text(encoding="utf-8") == text, message


def test_the_stubs_are_packed_and_found_wanting(capsys, tmp_path):
    arguments = ["--overlay", "student:.", "--results", str(tmp_path), "--output", str(tmp_path)]
    assert handin.main(arguments) == handin.EXIT_OK
    said = capsys.readouterr().out
    for exercise in assignment().of_kind("coding"):
        assert f"- {exercise.name}: {', '.join(exercise.implements)} in" in said
    for exercise in assignment().of_kind("experiment"):
        assert (f"- {exercise.name}: not in" in said) == bool(exercise.files)


def test_the_solution_has_every_function(capsys, tmp_path):
    arguments = ["--overlay", "staff:student:.", "--output", str(tmp_path), "--dry-run"]
    assert handin.main(arguments) == handin.EXIT_OK
    said = capsys.readouterr().out
    assert not re.search("- Coding|line \\d", said), said


@pytest.mark.parametrize("path", ["handin.py", "shared/completeness.py"])
def test_an_old_python_can_read_it_and_needs_nothing_else(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"), feature_version=(3, 9))
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    new = {"tomllib"}
    assert imported - {"shared.completeness"} <= set(sys.stdlib_module_names) - new
