"""The marker tool: what students get is what it should be, and bad markers stop the build."""

import ast

import pytest

from shared.assignment import assignment
from staff.tools.stubs import ROOT, StubError, build, check_leaks, main, make_stub, read_regions

TABLE = assignment()
FILE = "olmoe/train.py"  # implements accumulated_step and stage_times

SOLVED = '''"""A module."""

import math


def lm_loss(x):
    return x


def accumulated_step(model):
    """What it does.

    A docstring may say # BEGIN SOLUTION, and even have it on a line of its own:
    # BEGIN SOLUTION
    """
    # BEGIN SOLUTION
    total = _a_helper_of_the_solution(model) + CONSTANT_OF_THE_SOLUTION
    if total:
        return math.sqrt(total)
    return None
    # END SOLUTION


def stage_times(model):
    for layer in model:
        if layer:
            # BEGIN SOLUTION
            return _a_helper_of_the_solution(layer)
            # END SOLUTION
    return None


# BEGIN SOLUTION
CONSTANT_OF_THE_SOLUTION = 3


def _a_helper_of_the_solution(x):
    """Helps."""
    return x


# END SOLUTION
'''

STUB = '''"""A module."""

import math


def lm_loss(x):
    return x


def accumulated_step(model):
    """What it does.

    A docstring may say # BEGIN SOLUTION, and even have it on a line of its own:
    # BEGIN SOLUTION
    """
    raise NotImplementedError("Coding 6: accumulated_step")


def stage_times(model):
    for layer in model:
        if layer:
            raise NotImplementedError("Coding 7: stage_times")
    return None
'''


def test_regions_become_not_implemented_and_helpers_go():
    assert make_stub(SOLVED, FILE, TABLE) == STUB


def test_a_method_whose_only_body_is_a_solution():
    solved = """class Olmoe:
    def other(self):
        return 1

    def forward(self, x):
        # BEGIN SOLUTION
        y = x
        return y
        # END SOLUTION
"""
    stub = make_stub(solved, "olmoe/model.py", TABLE)
    assert stub.endswith(
        '    def forward(self, x):\n        raise NotImplementedError("Coding 5: Olmoe.forward")\n'
    )
    namespace = {}
    exec(stub, namespace)
    assert namespace["Olmoe"]().other() == 1
    with pytest.raises(NotImplementedError):
        namespace["Olmoe"]().forward(0)


def test_a_helper_method_of_the_solution_goes():
    solved = """class Olmoe:
    def forward(self, x):
        # BEGIN SOLUTION
        return self._helper(x)
        # END SOLUTION

    # BEGIN SOLUTION
    def _helper(self, x):
        return x

    # END SOLUTION
"""
    assert "_helper" not in make_stub(solved, "olmoe/model.py", TABLE)


BEGIN, END = "    # BEGIN SOLUTION", "    # END SOLUTION"


def _with_body(*lines: str) -> str:
    return "\n".join(["import math", "", "", "def f(x):", *lines, ""])


@pytest.mark.parametrize(
    ("lines", "line", "told"),
    [
        ([BEGIN, "    x = 1", BEGIN, "    x = 2", END, END], 7, "nested"),
        ([BEGIN, "    x = 1"], 5, "unclosed"),
        (["    x = 1", END], 6, "lone"),
        ([BEGIN, "    x = 1", END, END], 8, "lone"),
        ([BEGIN, END, "    return x"], 5, "empty"),
        ([BEGIN, "    # only words", END, "    return x"], 5, "empty"),
        ([BEGIN, "    x = 1", "# END SOLUTION"], 7, "indented otherwise"),
        ([BEGIN, "    x = 1", "y = 2", END], 5, "indented less"),
        ([BEGIN, "    x = 1", "", "    # c", "def g(x):", "    return x", END], 5, "indented less"),
        (["    #BEGIN SOLUTION", "    x = 1", END], 5, "misspelt"),
        (["    # BEGIN SOLUTIONS", "    x = 1", END], 5, "misspelt"),
        (["    # begin solution", "    x = 1", END], 5, "misspelt"),
        (["    # BEGIN SOLUTON", "    x = 1", END], 5, "misspelt"),
        (["    ### BEGIN SOLUTION", "    x = 1", END], 5, "misspelt"),
        (["    # BEGIN SOLUTION:", "    x = 1", END], 5, "misspelt"),
        (["    # BEGIN_SOLUTION", "    x = 1", END], 5, "misspelt"),
        (["    #  BEGIN SOLUTION", "    x = 1", END], 5, "misspelt"),
        ([BEGIN, "    x = 1", "    # END SOLUTION."], 7, "misspelt"),
        ([BEGIN, "    x = 1", "    # End Solution"], 7, "misspelt"),
        ([BEGIN, "    x = 1", "    return x  # END SOLUTION"], 7, "on a line of its own"),
        (["    x = 1  # BEGIN SOLUTION", "    return x", END], 5, "on a line of its own"),
    ],
)
def test_a_bad_marker_stops_the_build_and_is_shown(lines, line, told):
    source = _with_body(*lines)
    with pytest.raises(StubError) as caught:
        read_regions(source, "olmoe/prof.py")
    message = str(caught.value)
    assert message.startswith(f"olmoe/prof.py, line {line}: ")
    assert told in message
    assert f"> {line:4} {source.splitlines()[line - 1]}" in message  # with the lines around it
    assert len(message.splitlines()) > 2


@pytest.mark.parametrize(
    "comment",
    ["# the end condition", "# END CONDITION", "# a solution begins elsewhere", "# BEGIN", "# END"],
)
def test_other_comments_are_no_markers(comment):
    assert read_regions(_with_body(f"    {comment}", "    return x"), FILE) == []


def test_windows_line_ends_do_not_hide_a_marker():
    assert make_stub(SOLVED.replace("\n", "\r\n"), FILE, TABLE) == STUB


def test_a_file_that_cannot_be_parsed_is_named():
    with pytest.raises(StubError, match=r"olmoe/prof\.py: cannot be parsed"):
        read_regions("def f(:\n", "olmoe/prof.py")


def test_an_unmarked_exercise_stops_the_build():
    unmarked = SOLVED.replace("            # BEGIN SOLUTION\n", "").replace(
        "            # END SOLUTION\n", ""
    )
    with pytest.raises(StubError, match="no solution is marked in stage_times"):
        make_stub(unmarked, FILE, TABLE)


def test_a_solution_outside_the_exercises_stops_the_build():
    odd = SOLVED.replace("def lm_loss(x):\n", "def lm_loss(x):\n    # BEGIN SOLUTION\n").replace(
        "    return x\n\n\ndef acc", "    return x\n    # END SOLUTION\n\n\ndef acc"
    )
    with pytest.raises(StubError, match="lm_loss is no exercise"):
        make_stub(odd, FILE, TABLE)


def test_a_stub_that_does_not_compile_stops_the_build():
    odd = SOLVED.replace(
        "            # BEGIN SOLUTION\n            return _a_helper_of_the_solution(layer)\n",
        "            # BEGIN SOLUTION\n            pass\n",
    ).replace("    return None\n\n\n# BEGIN", "        else:\n            return None\n\n\n# BEGIN")
    assert make_stub(odd, FILE, TABLE)  # a branch may be a solution
    class_only = "class A:\n    # BEGIN SOLUTION\n    x = 1\n    # END SOLUTION\n"
    with pytest.raises(StubError, match="does not compile"):
        make_stub(SOLVED + "\n\n" + class_only, FILE, TABLE)


def test_a_name_that_went_with_a_solution_may_not_be_used():
    odd = SOLVED.replace(
        "    return x\n\n\ndef acc", "    return CONSTANT_OF_THE_SOLUTION\n\n\ndef acc"
    )
    with pytest.raises(StubError, match="uses CONSTANT_OF_THE_SOLUTION, which went"):
        make_stub(odd, FILE, TABLE)


LEAKED = "    total = _a_helper_of_the_solution(model) + CONSTANT_OF_THE_SOLUTION"


@pytest.mark.parametrize("where", [FILE, "olmoe/prof.py"])
def test_a_solution_that_stands_elsewhere_too_stops_the_build(where):
    files = {FILE: STUB, "olmoe/prof.py": "x = 1\n"}
    files[where] += f"\n\ndef unwrapped(model):\n{LEAKED}\n"
    with pytest.raises(StubError, match=f"also stands in the stub of {where}, line"):
        check_leaks({FILE: SOLVED}, files)


def test_short_lines_and_shown_functions_are_no_leak():
    check_leaks(
        {FILE: SOLVED}, {FILE: STUB + "\n\ndef f(total):\n    if total:\n        return None\n"}
    )
    check_leaks({FILE: SOLVED}, {FILE: STUB + f"\n\ndef train_step(model):\n{LEAKED}\n"})


# ---- the repository's own ---------------------------------------------------------------------


def test_the_committed_stubs_are_up_to_date(capsys):
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_every_exercise_raises_in_its_stub():
    texts = build()
    for exercise in TABLE.of_kind("coding"):
        tree = ast.parse(texts[exercise.file])
        for name in exercise.implements:
            node = tree
            for part in name.split("."):
                node = next(n for n in node.body if getattr(n, "name", "") == part)
            raised = [n for n in ast.walk(node) if isinstance(n, ast.Raise)]
            assert any(f"{exercise.name}: {name}" in ast.unparse(n) for n in raised), name


@pytest.fixture
def repository(tmp_path):
    """A repository with the table and the solved files, and no stubs."""
    for file in ["shared/assignment.toml", *(f"staff/{f}" for f in TABLE.modules.values())]:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text((ROOT / file).read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path


def test_check_says_which_stub_differs_and_how_to_mend_it(repository, capsys):
    assert main([], repository) == 0
    assert main(["--check"], repository) == 0
    stub = repository / "student" / "olmoe" / "prof.py"
    stub.write_text(stub.read_text().replace("import", "import  ", 1))
    capsys.readouterr()
    assert main(["--check"], repository) == 1
    said = capsys.readouterr().err
    assert "student/olmoe/prof.py" in said
    assert "student/olmoe/train.py" not in said
    assert "python staff/tools/stubs.py" in said


def test_nothing_is_written_when_a_file_is_bad(repository, capsys):
    solved = repository / "staff" / "olmoe" / "train.py"
    solved.write_text(solved.read_text().replace("# END SOLUTION", "# END SOLUTIONS"))
    assert main([], repository) == 1
    assert "olmoe/train.py, line" in capsys.readouterr().err
    assert not (repository / "student").exists()


def test_a_missing_solved_file_is_named(repository, capsys):
    (repository / "staff" / "olmoe" / "model.py").unlink()
    assert main([], repository) == 1
    assert "staff/olmoe/model.py is missing" in capsys.readouterr().err
