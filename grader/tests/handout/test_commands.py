"""Every command in the handout exists: scripts, their options, make's targets and settings."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache

import pytest

from grader.suite.places import ROOT
from shared.assignment import assignment

from .reading import commands

STUDENT = ROOT / "student"
COMMANDS = commands()
SHELL = ("cd", "exit", "squeue")
SHOWN = ("three_timings.py",)  # a program that the text prints in full


@cache
def options(script: str) -> dict[str, dict]:
    """Option -> keywords of the add_argument that declares it; "" stands for positional ones.

    Read from the source, with what session.arguments adds for every script.
    """
    declared: dict[str, dict] = {}
    for path in (STUDENT / script, STUDENT / "a1" / "session.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and node.args):
                continue
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            name = getattr(node.args[0], "value", None)
            if called in ("add_argument", "add") and isinstance(name, str):
                words = {k.arg: ast.unparse(k.value) for k in node.keywords if k.arg}
                several = any(k.arg is None for k in node.keywords)  # **several: nargs="+"
                words |= {"nargs": "'+'"} if several else {}
                declared[name if name.startswith("-") else ""] = words
    return declared


def check_options(script: str, arguments: list[str]) -> None:
    known = options(script)
    at = 0
    while at < len(arguments):
        word = arguments[at]
        at += 1
        if not word.startswith("--"):
            assert "" in known, f"{script} takes no argument {word!r}"
            continue
        name, _, value = word.partition("=")
        assert name in known, f"{script} has no option {name}"
        values = [value] if value else []
        takes_none = "store_true" in known[name].get("action", "")
        while not value and at < len(arguments) and not arguments[at].startswith("--"):
            values.append(arguments[at])
            at += 1
        if takes_none:
            assert not values, f"{script}: {name} takes no value"
        elif "'+'" not in known[name].get("nargs", ""):
            assert len(values) == 1, f"{script}: {name} takes one value, not {values}"
        choices = known[name].get("choices", "")
        if choices.startswith(("(", "[")):
            assert set(values) <= set(ast.literal_eval(choices)), (script, name, values)


@cache
def makefile() -> str:
    return (STUDENT / "Makefile").read_text(encoding="utf-8")


def check_make(words: list[str]) -> None:
    targets = set(re.findall(r"^([a-z-]+):", makefile(), flags=re.MULTILINE))
    for word in words:
        name, is_setting, value = word.partition("=")
        if not is_setting:
            assert word in targets, f"make has no target {word}"
            continue
        assert f"$({name})" in makefile(), f"the Makefile does not use {name}"
        if name in ("C", "E"):
            kind = {"C": "coding", "E": "experiment"}[name]
            assert int(value) in [e.number for e in assignment().of_kind(kind)]


@pytest.mark.parametrize("command", COMMANDS)
def test_command_exists(command):
    first, *rest = shlex.split(command.replace("...", "").replace("$USER", "me"))
    if first == "make":
        check_make(rest)
    elif first == "python" and rest[0] not in SHOWN:
        script = rest[0]
        assert (STUDENT / script).is_file(), f"there is no {script}"
        check_options(script, rest[1:])
    elif first == "a1/nsys.sh":
        assert (STUDENT / first).stat().st_mode & 0o100, f"{first} cannot be executed"
        assert rest and not rest[0].startswith("-"), "a recording needs a name"
        check_options("a1/profile_step.py", rest[1:])
    elif first == "sbatch":
        assert (STUDENT / rest[0]).is_file()
        assert (STUDENT / rest[2]).is_file()
    elif first == "git":
        assert rest[0] in ("clone", "pull")
    else:
        assert first in (*SHELL, "python"), f"what is {first}?"


def test_recording_commands_parse():
    """profile_step.py itself accepts what the handout gives it."""
    from a1 import profile_step

    for command in COMMANDS:
        if command.startswith("a1/nsys.sh") and "..." not in command and "NAME" not in command:
            profile_step.parse(shlex.split(command)[2:])


def test_commands_were_found():
    """A change of the text's form must not leave this file with nothing to check."""
    scripts = {w for c in COMMANDS for w in c.split() if w.startswith("a1/")}
    ours = {"bench_gemm", "regimes", "bench_ops", "micro_batches", "stages", "sweep", "routing"}
    assert {f"a1/{name}.py" for name in (*ours, "hello")} <= scripts
    assert sum(c.startswith("a1/nsys.sh ") for c in COMMANDS) >= 7
    wanted = ["make check", "make test", "make gpu-shell", "make handin", "make test C=1"]
    assert set(wanted) <= set(COMMANDS)


@pytest.mark.parametrize(
    "wrong",
    [
        "make chekc",
        "make test D=1",
        "make test C=10",
        "python a1/nothing.py",
        "python a1/stages.py --layer 4",
        "python a1/stages.py --recompute yes",
        "python a1/stages.py --layers 2 4",
        "python a1/micro_batches.py 4",
        "a1/nsys.sh demo --modus train",
        "a1/nsys.sh demo --mode backward",
        "nvidia-smi",
    ],
)
def test_a_wrong_command_is_found(wrong):
    with pytest.raises(AssertionError):
        test_command_exists(wrong)
