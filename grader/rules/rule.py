"""What a rule is, which rules there are, and what they say of a folder of results.

    @rule("gemm", "ops")                  judges each of these files by itself: (results, artifact)
    @rule("*_ranges")                     every recording's
    @across("stages", "stages_rc")        judges them together, once all can be read: (results)

A rule is a generator of messages for the student, none where nothing is wrong.  Its name is its
function's, its reason its docstring, its group the module it stands in.  It may rely on what
shared/artifacts.py has checked while it read the file: columns, types, finite numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import islice

from shared.artifacts import table, tables

from .experiment import Results

GROUPS = ("completeness", "bounds", "bookkeeping", "order")
MOST_MESSAGES = 4  # of one rule about one file: what is wrong with a column is wrong on every line
_RULES: dict[str, Rule] = {}


@dataclass(frozen=True)
class Rule:
    """One check for points."""

    name: str
    group: str
    reason: str
    cases: tuple[tuple[str, ...], ...]  # the artifacts that each of its judgements needs
    check: Callable[..., Iterator[str]]
    each: bool  # called with the artifact's name as well

    def messages(self, results: Results, experiment: str = "") -> list[str]:
        """What it finds in the files that can be read, of one experiment ("E2") or of all."""
        found: list[str] = []
        for artifacts in self.cases:
            if experiment and f"E{table(artifacts[0]).experiment}" != experiment:
                continue
            if all(results.has(name) for name in artifacts):
                said = self.check(results, *(artifacts if self.each else ()))
                found += islice(said, MOST_MESSAGES)
        return found


def rule(*patterns: str) -> Callable:
    """Declares a rule that judges each artifact whose name matches a pattern by itself."""

    def declare(check: Callable) -> Callable:
        names = [n for n in tables() if any(fnmatch(n, p) for p in patterns)]
        return _declare(check, tuple((n,) for n in names if table(n).experiment), each=True)

    return declare


def across(*artifacts: str) -> Callable:
    """Declares a rule that judges several artifacts of one experiment together."""

    def declare(check: Callable) -> Callable:
        return _declare(check, (artifacts,), each=False)

    return declare


def _declare(check: Callable, cases: tuple, each: bool) -> Callable:
    name, group = check.__name__, check.__module__.rpartition(".")[2]
    for artifacts in cases:
        assert len({table(a).experiment for a in artifacts}) == 1, f"{name}: two experiments"
    assert cases and name not in _RULES and group in GROUPS and check.__doc__, name
    _RULES[name] = Rule(name, group, " ".join(check.__doc__.split()), cases, check, each)
    return check


def all_rules() -> list[Rule]:
    """Every rule for points, group by group."""
    from . import bookkeeping, bounds, completeness, order  # noqa: F401 (they declare them)

    return sorted(_RULES.values(), key=lambda one: GROUPS.index(one.group))


def complaints(results: Results, experiment: str, group: str = "") -> list[str]:
    """What the rules of an experiment, or of one of its groups, say of a folder of results."""
    return [
        message
        for one in all_rules()
        if group in ("", one.group)
        for message in one.messages(results, experiment)
    ]
