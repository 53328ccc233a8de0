"""A change of a few functions goes over the solution, and nothing else of it moves."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ...proof import corpus
from ...proof.compose import ChangeError, compose, parts_of
from ...proof.corpus import cases, solution, stubs

SOLUTION = '''"""A module."""

from __future__ import annotations

import math

LIMIT = 3


def first(a):
    """Says a."""
    return a


@wraps
def second(b):
    return b


class Net:
    """A class."""

    size = 2

    def __init__(self):
        self.a = 1

    def forward(self, x):
        return x


def last():
    return LIMIT
'''


def definitions(source: str) -> dict[str, str]:
    """The text of each function, and of each method as Class.method."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = ast.unparse(node)
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    found[f"{node.name}.{inner.name}"] = ast.unparse(inner)
    return found


@pytest.mark.parametrize(
    "change, replaced",
    [
        ("def first(a):\n    return 7\n", {"first"}),
        ("def second(b):\n    return 7\n", {"second"}),
        ("@cache\ndef last():\n    return 7\n", {"last"}),
        ("class Net:\n    def forward(self, x):\n        return 7\n", {"Net.forward"}),
        ("class Net:\n    def more(self):\n        return 7\n", {"Net.more"}),
        ("def helper():\n    return 7\n", {"helper"}),
        ("def first(a):\n    return 7\n\n\ndef last():\n    return 7\n", {"first", "last"}),
    ],
)
def test_only_what_the_change_names_is_replaced(change, replaced):
    composed = compose(SOLUTION, change)
    before, after = definitions(SOLUTION), definitions(composed)
    assert {n for n in after if after[n] != before.get(n)} == replaced
    assert set(before) <= set(after)
    assert all("return 7" in after[name] for name in replaced)
    assert composed.count("LIMIT = 3") == composed.count('"""A class."""') == 1


def test_the_decorator_of_what_is_replaced_goes_with_it():
    assert "@wraps" not in compose(SOLUTION, "def second(b):\n    return 7\n")


def test_imports_and_helpers_come_below_the_solutions_imports_in_their_order():
    change = "from __future__ import annotations\nimport json\n\nA = 1\nB = A + 1\n"
    lines = compose(SOLUTION, change).splitlines()
    order = [lines.index(x) for x in ("import math", "import json", "A = 1", "B = A + 1")]
    assert order == sorted(order) and order[-1] < lines.index("LIMIT = 3")
    assert lines.count("from __future__ import annotations") == 1


def test_a_class_attribute_that_is_not_a_method_is_left_alone():
    composed = compose(
        SOLUTION, "class Net:\n    size = 9\n\n    def forward(self, x):\n        pass\n"
    )
    assert "size = 2" in composed


@settings(max_examples=60, deadline=None)
@given(st.sets(st.sampled_from(["first", "second", "last", "new"]), min_size=1))
def test_any_choice_of_functions_composes(names):
    change = "\n\n".join(f"def {name}(*args):\n    return {name!r}" for name in sorted(names))
    after = definitions(compose(SOLUTION, change))
    assert {n for n in after if f"return '{n}'" in after[n]} == names


def test_a_change_that_is_no_python_is_refused():
    with pytest.raises(SyntaxError):
        compose(SOLUTION, "def first(:\n")


def test_parts_are_told_apart_by_their_file():
    parts = parts_of('"""x"""\n# file: a/b.py\nA = 1\n# file: c.py\nB = 2\n')
    assert {k: v.strip() for k, v in parts.items()} == {"a/b.py": "A = 1", "c.py": "B = 2"}
    with pytest.raises(ChangeError, match="# file: PATH"):
        parts_of("A = 1\n")


# ---- The corpus ---------------------------------------------------------------------------------


def test_every_case_composes_and_no_two_are_the_same():
    untouched, seen = solution(), {}
    for case in cases():
        files = case.files()
        changed = {name: data for name, data in files.items() if data != untouched.get(name)}
        assert set(files) == set(untouched) and changed, case.name
        for name, data in changed.items():
            compile(data, name, "exec")
        assert seen.setdefault(tuple(sorted(changed.items())), case.name) == case.name


def test_each_wrong_case_names_a_test_of_its_exercise():
    for case in cases():
        if case.wrong and not case.points:
            assert case.caught_by.startswith(f"{case.exercise}.") and case.says, case.name


def test_one_exercise_can_be_asked_for():
    assert {c.exercise for c in cases({"C2"})} == {"C2"}


@pytest.mark.parametrize(
    "docstring, words",
    [
        ("", "exercise"),
        ("A title.\n\nexercise: C1\nsays: x\n", "caught by"),
        ("A title.\n\ncaught by: C1.1\nsays: x\n", "exercise"),
    ],
)
def test_a_case_that_is_ill_described_is_refused_by_name(tmp_path, monkeypatch, docstring, words):
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong/c1_x.py").write_text(f'"""{docstring}"""\n# file: olmoe/prof.py\n')
    monkeypatch.setattr(corpus, "HERE", tmp_path)
    with pytest.raises(ChangeError, match=f"wrong/c1_x.*{words}"):
        cases()


def test_a_case_for_a_file_that_is_not_handed_in_is_refused(tmp_path, monkeypatch):
    (tmp_path / "right").mkdir()
    text = '"""A title.\n\nexercise: C1\n"""\n# file: olmoe/data.py\nA = 1\n'
    (tmp_path / "right/c1_x.py").write_text(text)
    monkeypatch.setattr(corpus, "HERE", tmp_path)
    (case,) = cases()
    with pytest.raises(ChangeError, match=r"olmoe/data\.py is not one of the files"):
        case.files()


def test_solution_and_stubs_have_the_same_files():
    assert {f for f in solution() if f.endswith(".py")} == {f for f in stubs() if f.endswith(".py")}
