"""What a probe's answer may be, who is blamed for a failed import, and what is advised."""

from __future__ import annotations

import signal

import pytest

from shared.assignment import assignment

from ...suite import advice, wire
from ...suite.backend import BackendFault, Reply, ended_with, find_broken_files, reply_of
from ...suite.plugin import failure_of

RAISED = {
    "type": "ValueError",
    "message": "bad",
    "file": "olmoe/prof.py",
    "line": 3,
    "own": ["olmoe/prof.py, line 3, in f: g()"],
    "traceback": "Traceback ...",
}


def sent(content) -> Reply:
    return reply_of(wire.encode(content))


def test_an_answer_is_a_value_or_an_exception():
    assert sent({"value": [1], "left": ["x"]}) == Reply(value=[1], left=("x",))
    assert sent({"raised": RAISED, "left": []}).raised == RAISED
    assert type(sent(wire.Opaque("too much")).value) is wire.Opaque


@pytest.mark.parametrize(
    "content",
    [
        *(None, [], {}, {"value": 1}, {"left": []}, {"value": 1, "left": 2}, {"other": 1}),
        {"value": 1, "left": [1]},
        {"value": 1, "raised": RAISED, "left": []},
        {"other": 1, "left": []},
        {"raised": None, "left": []},
        {"raised": {k: v for k, v in RAISED.items() if k != "own"}, "left": []},
        *({"raised": RAISED | {key: {}}, "left": []} for key in RAISED),
        {"raised": RAISED | {"own": [1]}, "left": []},
        {"raised": RAISED | {"more": 1}, "left": []},
    ],
)
def test_any_other_answer_is_refused(content):
    with pytest.raises(wire.WireError):
        sent(content)


@pytest.mark.parametrize(
    "status, words",
    [
        (None, "ended the Python process"),
        (0, "ended the Python process with exit status 0"),
        (-signal.SIGSEGV, "ended the Python process with signal SIGSEGV"),
        (-40, "ended the Python process with signal 40"),
    ],
)
def test_how_a_process_ended(status, words):
    assert ended_with(status) == words


class Importing:
    """A backend in which the given files fail to import, one after the other."""

    def __init__(self, replies):
        self.broken, self.warned, self._replies = {}, [], iter(replies)

    def try_import(self) -> Reply:
        return next(self._replies)


def found(tmp_path, *replies, files=None) -> Importing:
    for file in files or assignment().modules.values():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("")
    backend = Importing(replies)
    find_broken_files(backend, backend.try_import, [tmp_path])
    return backend


def test_culprits_are_found_one_after_the_other(tmp_path):
    train = RAISED | {"file": "olmoe/train.py"}
    good = Reply(value=[], left=("model.py changes something",))
    backend = found(tmp_path, Reply(raised=RAISED), Reply(raised=train), good)
    assert list(backend.broken) == ["olmoe/prof.py", "olmoe/train.py"]
    assert backend.warned == ["model.py changes something"]


def test_an_import_that_fails_for_ever_is_not_tried_for_ever(tmp_path):
    replies = [Reply(raised=RAISED)] * 2
    assert list(found(tmp_path, *replies).broken) == ["olmoe/prof.py"]


def test_files_that_are_not_there_are_named(tmp_path):
    backend = found(tmp_path, Reply(value=[]), files=["olmoe/prof.py"])
    assert set(backend.broken) == set(assignment().modules.values()) - {"olmoe/prof.py"}
    assert backend.broken["olmoe/train.py"].message == "olmoe/train.py is not in the hand-in"


def test_only_the_hand_ins_files_can_be_blamed(tmp_path):
    elsewhere = Reply(ended="ended the Python process", executing=("/etc/passwd",))
    files = set(assignment().modules.values())
    assert set(found(tmp_path, elsewhere, elsewhere).broken) <= files
    nowhere = Reply(raised=RAISED | {"file": None, "line": None})
    assert set(found(tmp_path, nowhere, nowhere).broken) <= files


def test_a_machine_too_slow_to_begin_is_not_the_hand_ins_fault(tmp_path):
    with pytest.raises(BackendFault, match="had not come to its code"):
        found(tmp_path, Reply(ended="took longer than 20 s"))


@pytest.mark.parametrize(
    "error, said, source, advised",
    [
        ("NameError", "name 'null' is not defined", '{\n "cells": [], "nbformat": 4}', "notebook"),
        ("SyntaxError", "invalid syntax", "a = 1\n<<<<<<< HEAD\n=======\n>>>>>>> b\n", "line 2"),
        ("TabError", "inconsistent", "", "spaces"),
        ("IndentationError", "unindent", "if 1:\n\ta\n", "spaces"),
        ("ModuleNotFoundError", "No module named 'x'", "", "do without"),
        ("SystemExit", "0", "", "must not exit"),
        ("ImportError", "cannot import name 'f' from 'olmoe.prof'", "", "still there"),
    ],
)
def test_what_to_do_about_an_import(error, said, source, advised):
    assert advised in advice.on_import(error, said, source)


@pytest.mark.parametrize(
    "error, said, source",
    [
        ("SyntaxError", "invalid syntax", "x = '''\n====\n'''\n"),
        ("IndentationError", "unexpected indent", "  a\n"),
        ("NameError", "name 'null' is not defined", "null\n"),
        ("ValueError", "bad", '{"a": 1}\n'),
    ],
)
def test_nothing_is_advised_where_the_words_will_do(error, said, source):
    assert advice.on_import(error, said, source) == ""


def test_an_exception_in_the_code_is_not_called_a_broken_contract():
    inside = failure_of(Reply(raised=RAISED | {"type": "TypeError", "message": "argument"}), "f.py")
    assert advice.CONTRACT not in str(inside)
    outside = RAISED | {"type": "TypeError", "message": "unexpected argument", "file": None}
    assert advice.CONTRACT in str(failure_of(Reply(raised=outside), "f.py"))


def test_every_end_has_its_advice():
    for ended in (
        "took longer than 60 s",
        "used more than 6000 MiB of memory",
        "had more than 64 processes",
        ended_with(0),
        ended_with(-11),
        "ended the process that tests it",
    ):
        assert advice.on_end(ended)


def test_a_dump_names_the_innermost_line_of_the_hand_in():
    dump = (
        "printed by the student\n"
        "Current thread 0x00007f (most recent call first):\n"
        '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at\n'
        '  File "/tmp/h/olmoe/prof.py", line 12 in inner\n'
        '  File "/tmp/h/olmoe/prof.py", line 40 in cuda_time\n'
    )
    files = [("/tmp/h/olmoe/prof.py", "olmoe/prof.py")]
    assert advice.place(dump, files) == "olmoe/prof.py, line 12"
    assert advice.place(dump, []) == advice.place("", files) == ""
