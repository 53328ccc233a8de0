"""From the upload to results.json: who gets which points, who reads what, and whose fault it is."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import tomllib

import pytest

from shared.assignment import assignment

from ... import score
from ...judge import one, run, stage
from ...judge.results import GRADER_FAULT, _validator
from ...proof.corpus import solution, stubs
from ...suite.places import ROOT
from .samples import tar_gz

CODING = "1,2,3,4,5,6,7,8"
KEYS = [f"C{n}" for n in CODING.split(",")]


def points_of(keys) -> dict[str, float]:
    return {key: assignment().exercise(key).points for key in keys}


def uploaded(tmp_path, files: dict[str, bytes]):
    path = tmp_path / "20270301-120000.tar.gz"
    path.write_bytes(tar_gz(files))
    return path


def scored(tmp_path, files, *arguments) -> tuple[int, dict]:
    """The exit status of score.py, and what it wrote."""
    out = tmp_path / "out" / "results.json"
    code = score.main(
        [str(uploaded(tmp_path, files)), "-o", str(out), "--tier", "virtual", *arguments]
    )
    content = json.loads(out.read_bytes())
    _validator().validate(content)
    assert os.listdir(out.parent) == [out.name]
    return code, content


def shown_of(content: dict) -> str:
    """All that a student may ever read, hidden tests included once grades are published."""
    top = {k: v for k, v in content.items() if k not in ("extra_data", "tests")}
    tests = [{k: v for k, v in t.items() if k != "extra_data"} for t in content["tests"]]
    return json.dumps([top, tests], ensure_ascii=False)


def patched(source: bytes, old: bytes, new: bytes) -> bytes:
    assert source.count(old) == 1
    return source.replace(old, new)


# ---- Points -------------------------------------------------------------------------------------


def test_the_staff_solution_is_full_in_public_and_in_hidden(tmp_path, capsys):
    code, content = scored(tmp_path, solution(), "--coding", CODING)
    assert code == score.EXIT_SCORED and not content["extra_data"]["grader_fault"]
    for suite in run.SUITES:
        tests = [t for t in content["tests"] if suite in t["tags"]]
        failed = [(t["number"], t["extra_data"]["staff_output"]) for t in tests if not t["score"]]
        assert not failed
        assert sum(t["score"] for t in tests) == pytest.approx(80)
    assert content["score"] == 160
    assert "Public: 80/80" in content["output"]
    printed = capsys.readouterr().out
    assert re.search(r"Coding 7 +OK +20/20", printed) and "160/160" in printed


def test_stubs_score_nothing_and_every_test_is_reported(judged):
    done = judged(stubs(), CODING, run.SUITES)
    planned = one.planned_tests((f"--coding={CODING}",))
    assert len(done.content["tests"]) == len(planned) > 80
    assert done.content["score"] == 0 and not done.results.grader_fault
    for test in done.results.tests:
        assert test.status == "failed"
        assert "NotImplementedError: Coding " in test.output
        assert re.match(r"\S+\.py, line \d+: ", test.output)
        assert "\n" not in test.output
    assert not done.results.problems[1:], "only answers.md is missing"


def test_what_is_solved_counts_and_nothing_else(judged):
    """C1, C5 and C7 of the staff; C4 stands in C1's file and C6 in C7's, as stubs."""
    solved, stub = solution(), stubs()
    files = solved | {"a1/perfmodel.py": stub["a1/perfmodel.py"]}
    for file, function in (("olmoe/prof.py", "annotate"), ("olmoe/train.py", "accumulated_step")):
        files[file] += (
            f"\n\ndef {function}(*args, **kwargs):\n    raise NotImplementedError('not done')\n"
        ).encode()
    done = judged(files, CODING)
    assert done.points() == pytest.approx(dict.fromkeys(KEYS, 0.0) | points_of(["C1", "C5", "C7"]))


def test_a_syntax_error_costs_the_exercises_of_its_file_and_nothing_else(judged):
    files = solution()
    files["olmoe/prof.py"] += b"\ndef broken(:\n    pass\n"
    line = files["olmoe/prof.py"].count(b"\n") - 1
    done = judged(files, "1,2,3,4,6,8")
    assert done.points() == pytest.approx(done.full() | {"C1": 0, "C4": 0})
    says = f"olmoe/prof.py, line {line}: SyntaxError: invalid syntax"
    assert any(problem.startswith(says) for problem in done.results.problems)
    for test in done.results.tests:
        if test.exercise in ("C1", "C4"):
            assert test.output.startswith(says) and "Traceback" in test.staff_output


def test_a_model_that_cannot_be_imported_costs_recomputation_alone(judged):
    files = solution()
    files["olmoe/model.py"] = b"import torch\n\nmodel = torch.nn.Linear(8)\n"
    done = judged(files, "5,6")
    assert done.points() == pytest.approx(done.full() | {"C5": 0})
    assert "olmoe/model.py, line 3: TypeError" in done.content["output"]


def test_a_changed_model_runs_as_handed_in_and_the_staff_read_which_lines(judged):
    files = solution()
    files["olmoe/model.py"] = patched(
        files["olmoe/model.py"],
        b"        return self.lm_head(self.norm(x))",
        b"        x = x * 1\n        return self.lm_head(1 * self.norm(x))",
    )
    done = judged(files, "5")
    assert done.points() == pytest.approx(done.full())  # numerically it is the same
    (note,) = [n for n in done.results.notes if "differs from the release" in n]
    assert note.startswith("olmoe/model.py")
    number = (
        files["olmoe/model.py"]
        .split(b"\n")
        .index(b"        return self.lm_head(1 * self.norm(x))  # [T, V]")
    )
    assert f"now line {number}: x = x * 1" in note and "released line" in note
    assert "differs from the release" not in shown_of(done.content)


def test_a_model_with_another_result_is_not_quietly_replaced(judged):
    files = solution()
    files["olmoe/model.py"] = patched(
        files["olmoe/model.py"],
        b"return self.lm_head(self.norm(x))",
        b"return self.lm_head(self.norm(x)) if not recompute else self.lm_head(x)",
    )
    done = judged(files, "5")
    assert done.points()["C5"] < done.full()["C5"]


# ---- What is hidden stays hidden ----------------------------------------------------------------


def test_a_student_reads_nothing_of_the_hidden_tests(judged):
    """Code that says whatever it was called with, in public and in hidden."""
    files = solution()
    files["a1/perfmodel.py"] += b"""

calls = 0


def gemm_flops(*args):
    global calls
    calls += 1  # the first call is the same in both suites
    if calls > 1:
        raise ValueError(f"ARGS {args}")
    return 33_554_432


def gemm_bytes(m, k, n):
    return m + k + n
"""
    done = judged(files, "2", run.SUITES)
    hidden = [t for t in done.content["tests"] if "hidden" in t["tags"]]
    shown, kept = shown_of(done.content), done.kept()
    arguments = set(re.findall(r"ARGS \([\d, ]+\)", kept)) - {
        found
        for test in done.content["tests"]
        if "public" in test["tags"]
        for found in re.findall(r"ARGS \([\d, ]+\)", test["output"])
    }
    assert arguments, "the staff see what the hidden tests called it with"
    for found in arguments:
        assert found not in shown and found.removeprefix("ARGS ") not in shown
    secret = tomllib.loads((ROOT / "staff/term.toml").read_text())["secret"]
    assert secret not in json.dumps(done.content)
    for test in hidden:
        assert test["visibility"] == "after_published"
        assert re.fullmatch(r"(Passed|Failed)\..*", test["output"])
        assert not re.search(r"\d|\.py|/", test["output"])
        public = {t["name"] for t in done.content["tests"] if "public" in t["tags"]}
        assert test["name"].removeprefix("Hidden: ") in public
    assert any(t["extra_data"]["staff_output"] for t in hidden)


def test_the_solver_sees_no_suite_and_no_staff_file(judged, started):
    """Public code that looks for them; where nothing shuts it in, hidden tests do not run."""
    if not started.rung.hides_staff_files:
        pytest.skip("nothing on this machine hides files: bubblewrap is not installed")
    files = solution()
    files["a1/perfmodel.py"] += (
        "\n\nimport os\n\nFOUND = [p for p in "
        f"({str(ROOT / 'staff')!r}, {str(ROOT / 'grader')!r}, {str(ROOT / 'README.md')!r}) "
        "if os.path.exists(p)]\n"
        "for folder, _, names in os.walk("
        f"{str(started.staged)!r}):\n"
        "    FOUND += [n for n in names if n.startswith('test_') or n == 'term.toml']\n"
        "if FOUND:\n    raise RuntimeError(f'found {FOUND}')\n"
    ).encode()
    done = judged(files, "2")
    assert done.points() == pytest.approx(done.full())


def test_hidden_tests_do_not_run_where_they_could_be_read(tmp_path, capsys):
    code, content = scored(tmp_path, solution(), "--coding", "2", "--containment", "none")
    assert code == score.EXIT_GRADER_FAULT
    assert "could be read" not in content["output"] and content["output"].startswith(GRADER_FAULT)
    assert "The hidden tests did not run" in content["extra_data"]["grader_fault"]
    assert content["score"] == 4
    assert {t["extra_data"]["status"] for t in content["tests"] if "hidden" in t["tags"]} == {
        "not_judged"
    }
    assert "GRADER FAULT" in capsys.readouterr().err


# ---- The grader's own faults --------------------------------------------------------------------


def test_suites_that_cannot_be_collected_are_our_fault(tmp_path, monkeypatch):
    broken = tmp_path / "grader"
    (broken / "public").mkdir(parents=True)
    (broken / "public/test_c1.py").write_text("def (:\n")
    monkeypatch.setattr(run, "GRADER", broken)
    monkeypatch.setattr(run, "_planned", {})
    code, content = scored(tmp_path, stubs(), "--coding", "1")
    assert code == score.EXIT_GRADER_FAULT
    assert content["tests"] == [] and content["output"].startswith(GRADER_FAULT)
    assert "the public suite cannot be collected" in content["extra_data"]["grader_fault"]
    assert "SyntaxError" in content["extra_data"]["grader_fault"]


def test_a_solver_that_cannot_start_is_our_fault(tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "lay_out", lambda folder: (folder / "released").mkdir())
    code, content = scored(tmp_path, stubs(), "--coding", "2")
    assert code == score.EXIT_GRADER_FAULT
    assert {t["extra_data"]["status"] for t in content["tests"]} == {"not_judged"}
    assert content["output"].startswith(GRADER_FAULT)
    assert "No module named 'grade'" in content["extra_data"]["grader_fault"]
    assert "Traceback" not in shown_of(content)


def test_a_suite_that_is_killed_keeps_what_was_judged(judged, monkeypatch):
    """pytest is killed when the second test of C2 asks for its first probe."""
    from ...judge import solver

    ask = solver.Solver.observe

    def fatal(self, probe, args, group=""):
        if args.get("function") == "gemm_bytes":
            os.kill(os.getpid(), signal.SIGKILL)
        return ask(self, probe, args, group)

    monkeypatch.setattr(solver.Solver, "observe", fatal)
    done = judged(solution(), "1,2")
    states = {t.number: t.status for t in done.results.tests}
    assert (states["C2.1"], states["C2.2"], states["C2.3"]) == (
        "passed",
        "not_judged",
        "not_judged",
    )
    assert done.points()["C1"] == done.full()["C1"]
    fault = done.content["extra_data"]["grader_fault"]
    assert "ended with status -9" in fault
    assert done.content["output"].startswith(GRADER_FAULT)
    assert "status" not in done.content["tests"][-1]


def test_a_solver_that_breaks_midway_is_our_fault_for_the_tests_it_broke(judged, monkeypatch):
    from ...judge import solver

    ask = solver.Solver.observe

    def broken(self, probe, args, group=""):
        if args.get("function") == "gemm_bytes":
            raise solver.SolverFault("the disk is full")
        return ask(self, probe, args, group)

    monkeypatch.setattr(solver.Solver, "observe", broken)
    done = judged(solution(), "2")
    states = {t.number: t.status for t in done.results.tests}
    assert states == {"C2.1": "passed", "C2.2": "not_judged", "C2.3": "passed"}
    assert "public/C2.2" in done.results.grader_fault
    assert "the disk is full" in done.results.grader_fault
    assert "the disk is full" not in shown_of(done.content)


def test_a_test_that_fails_by_itself_is_noted_for_the_staff(judged, monkeypatch):
    from ...judge import solver
    from ...suite.backend import Reply

    monkeypatch.setattr(solver.Solver, "observe", lambda *_: Reply(value={1: 2}))
    done = judged(solution(), "1")
    assert not done.results.grader_fault
    broke = [n for n in done.results.notes if "the test itself failed" in n]
    assert broke and broke[0].startswith("public/C1.")


# ---- Time ---------------------------------------------------------------------------------------


def test_one_endless_loop_leaves_time_for_everything_else(judged, started):
    """The whole limit is waited for once in an exercise, and in hidden not again."""
    files = solution()
    files["a1/perfmodel.py"] += b"\n\ndef gemm_flops(m, k, n):\n    while True:\n        pass\n"
    files["a1/perfmodel.py"] += b"\n\ndef gemm_bytes(m, k, n):\n    while True:\n        pass\n"
    begin = time.monotonic()
    done = judged(files, "1,2", run.SUITES)
    hung = [t for t in done.results.tests if t.exercise == "C2" and not t.passed]
    assert [t.number for t in hung] == ["C2.1", "C2.2"] * 2
    assert hung[0].seconds >= started.limits.test_s
    assert all(t.seconds < started.limits.test_s for t in hung[1:])
    assert time.monotonic() - begin < 60
    for suite in run.SUITES:
        assert done.points(suite)["C1"] == done.full(suite)["C1"]


def test_a_hand_in_that_uses_up_the_time_of_all_tests_is_told_so(judged, monkeypatch):
    """No fault of ours: what was judged counts, and the rest says why it was not."""
    files = solution()
    files["a1/perfmodel.py"] += b"\n\ndef gemm_flops(m, k, n):\n    while True:\n        pass\n"
    real = one.run_suite

    def short(suite, solver, folder, limit_s, select):
        def slow(probe, args, group=""):
            reply = type(solver).observe(solver, probe, args, group)
            if reply.hung:
                solver.observe = lambda *_: time.sleep(60)
            return reply

        solver.observe = slow
        try:
            return real(suite, solver, folder, 6.0, select)
        finally:
            del solver.observe

    monkeypatch.setattr(one, "run_suite", short)
    done = judged(files, "1,2")
    assert not done.results.grader_fault
    assert done.points()["C1"] == done.full()["C1"]
    states = {t.number: t.status for t in done.results.tests if t.exercise == "C2"}
    assert states == {"C2.1": "failed", "C2.2": "not_judged", "C2.3": "not_judged"}
    (output,) = {t.output for t in done.results.tests if not t.judged}
    assert "were used up. Mend first what took too long: Coding 2." in output


# ---- Being called -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [[], ["missing.tar.gz"], ["--tier", "fast", "x"], ["--no-such-option", "x"]],
)
def test_called_wrongly(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        code = score.main(arguments)
    except SystemExit as error:
        code = error.code
    assert code == score.EXIT_USAGE == 2
    assert capsys.readouterr().err


def test_a_rung_that_nobody_knows_is_a_wrong_call(tmp_path, capsys):
    upload = uploaded(tmp_path, stubs())
    with pytest.raises(SystemExit) as stopped:
        score.main([str(upload), "--tier", "virtual", "--containment", "moat"])
    assert stopped.value.code == score.EXIT_USAGE
    assert "moat" in capsys.readouterr().err
