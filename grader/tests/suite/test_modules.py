"""Whose code an import brings, and that nothing of it is left behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from shared.assignment import assignment

from ...suite.modules import Modules
from ...suite.observe import described
from ...suite.places import ROOT, folders_of, given_folders, released_folder, results_of

FILES = assignment().modules


@pytest.fixture
def handin(tmp_path):
    """handin({"olmoe/prof.py": "source"}) -> the folder it lies in."""

    def write(sources: dict[str, str]) -> Path:
        for file, source in sources.items():
            path = tmp_path / "handin" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
        return tmp_path / "handin"

    return write


def packages_in(modules) -> set[str]:
    return {name for name in modules if name.split(".")[0] in ("olmoe", "a1")}


def test_a_file_comes_from_the_hand_in_and_the_rest_from_the_release(handin):
    folder = handin({"olmoe/prof.py": "WHOSE = 'mine'\n"})
    with Modules([folder]) as modules:
        assert modules.load("olmoe.prof").WHOSE == "mine"
        for name in ("olmoe.config", "olmoe.data", "a1.perfmodel"):
            path = Path(modules.load(name).__file__)
            assert any(given in path.parents for given in given_folders())


def test_a_replaced_file_comes_from_the_release(handin):
    folder = handin({"olmoe/prof.py": "this is no Python\n"})
    with Modules([folder], replaced=["olmoe/prof.py"]) as modules:
        assert Path(modules.load("olmoe.prof").__file__).is_relative_to(released_folder())


def test_the_first_folder_counts(handin):
    folder = handin({"one/olmoe/prof.py": "N = 1\n", "two/olmoe/prof.py": "N = 2\n"})
    with Modules([folder / "one", folder / "two"]) as modules:
        assert modules.load("olmoe.prof").N == 1


def test_a_hand_in_never_falls_back_on_the_staff_solution(handin, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "staff"), *sys.path])
    with Modules([handin({})]) as modules:
        for name, file in FILES.items():
            assert Path(modules.load(name).__file__) == released_folder() / file
        assert str(ROOT / "staff") not in sys.path


def test_released_modules_are_built_on_released_ones_alone(handin):
    folder = handin({"olmoe/model.py": "class Olmoe:\n    mine = True\n"})
    with Modules([folder]) as modules:
        mine = modules.load("olmoe.model")
        released = modules.released("olmoe.model")
        assert mine.Olmoe.mine and not hasattr(released.Olmoe, "mine")
        assert modules.load("olmoe.model") is mine is sys.modules["olmoe.model"]
        assert modules.released("olmoe.model") is released
        import olmoe

        assert olmoe.model is mine


def test_released_modules_can_be_had_before_and_without_the_hand_ins(handin):
    folder = handin({"olmoe/model.py": "raise RuntimeError('never imported')\n"})
    with Modules([folder]) as modules:
        assert modules.released("olmoe.model").Olmoe


def test_it_leaves_sys_as_it_found_it(handin):
    import olmoe.config as before

    folder = handin({"olmoe/prof.py": "import olmoe.config\n"})
    path, finders, loaded = list(sys.path), list(sys.meta_path), packages_in(sys.modules)
    with Modules([folder]) as modules:
        modules.load("olmoe.prof")
        assert sys.modules["olmoe.config"] is not before
    assert (sys.path, sys.meta_path) == (path, finders)
    assert packages_in(sys.modules) == loaded and sys.modules["olmoe.config"] is before


def test_also_when_an_import_fails(handin):
    folder = handin({"olmoe/prof.py": "import olmoe.data\n1 / 0\n"})
    path, loaded = list(sys.path), packages_in(sys.modules)
    with pytest.raises(ZeroDivisionError), Modules([folder]) as modules:
        modules.load("olmoe.prof")
    assert sys.path == path and packages_in(sys.modules) == loaded


def test_an_init_file_in_a_hand_in_hides_nothing(handin):
    folder = handin({"olmoe/__init__.py": "raise RuntimeError\n", "olmoe/prof.py": "N = 1\n"})
    (folder / "olmoe/__init__.py").unlink()  # intake lets none through; a clone may have one
    with Modules([folder]) as modules:
        assert modules.load("olmoe.prof").N == 1 and modules.load("olmoe.config")


def test_no_bytecode_is_written_and_none_believed(handin, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    folder = handin({"olmoe/prof.py": "N = 1\n"})
    with Modules([folder]) as modules:
        modules.load("olmoe.prof")
    assert not list(folder.rglob("*.pyc"))
    stat = (folder / "olmoe/prof.py").stat()
    (folder / "olmoe/prof.py").write_text("N = 2\n")
    import os

    os.utime(folder / "olmoe/prof.py", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with Modules([folder]) as modules:
        assert modules.load("olmoe.prof").N == 2


def test_it_tells_which_files_are_being_executed(handin):
    folder = handin(
        {"olmoe/train.py": "import olmoe.prof\nimport olmoe.config\n", "olmoe/prof.py": "N = 1\n"}
    )
    told = []
    with Modules([folder], on_import=told.append) as modules:
        modules.load("olmoe.train")
    outer, inner = "olmoe/train.py", "olmoe/prof.py"
    assert told == [[outer], [outer, inner], [outer], []]


def failing(modules: Modules, name: str) -> dict:
    try:
        modules.load(name)
    except BaseException as error:
        return described(error, modules)
    raise AssertionError(f"{name} can be imported")


@pytest.mark.parametrize(
    "source, error, line",
    [
        ("a = 1\nb = (\n", "SyntaxError", 2),
        ("a = 1\n  b = 2\n", "IndentationError", 2),
        ("if 1:\n    a = 1\n\tb = 2\n", "TabError", 3),
        ("a = 1\n\nimport nowhere\n", "ModuleNotFoundError", 3),
        ("import sys\nsys.exit('bye')\n", "SystemExit", 2),
        ("def f():\n    return g()\n\n\nf()\n", "NameError", 2),
        ("a = 1\0\n", None, None),  # a ValueError or a SyntaxError, by the version of Python
    ],
)
def test_an_exception_names_the_file_and_the_line(handin, source, error, line):
    train = "import olmoe.prof\n"
    folder = handin({"olmoe/prof.py": source, "olmoe/train.py": train})
    with Modules([folder]) as modules:
        seen = failing(modules, "olmoe.train")
    assert seen["file"] == "olmoe/prof.py"
    if error:
        assert (seen["type"], seen["line"]) == (error, line)
    assert seen["type"] in seen["traceback"]


def test_an_exception_elsewhere_names_the_innermost_own_line(handin):
    folder = handin({"olmoe/prof.py": "import json\n\n\ndef f():\n    json.loads('{')\n\n\nf()\n"})
    with Modules([folder]) as modules:
        seen = failing(modules, "olmoe.prof")
    assert (seen["file"], seen["line"]) == ("olmoe/prof.py", 5)
    assert seen["own"][-1] == "olmoe/prof.py, line 5, in f: json.loads('{')"


def test_an_exception_that_cannot_speak_is_described(handin):
    source = "class Odd(Exception):\n    def __str__(self):\n        1 / 0\n\n\nraise Odd\n"
    with Modules([handin({"olmoe/prof.py": source})]) as modules:
        seen = failing(modules, "olmoe.prof")
    assert (seen["type"], seen["line"]) == ("Odd", 6) and "could not be read" in seen["message"]


# ---- Places -------------------------------------------------------------------------------------


def test_whose_code_is_meant(tmp_path):
    assert folders_of("student") == [ROOT / "student"]
    assert folders_of("staff") == [ROOT / "staff", ROOT / "student"]
    assert folders_of(str(tmp_path)) == [tmp_path]
    with pytest.raises(FileNotFoundError, match="no such folder"):
        folders_of(str(tmp_path / "missing"))


def test_whose_results_are_meant(tmp_path):
    assert results_of("staff") == ROOT / "staff" / assignment().handin.results
    assert results_of(str(tmp_path)) == tmp_path / assignment().handin.results
