"""The leaderboard: medians, ties, the staff's place, and what unusable predictions do."""

import json
import math
from pathlib import Path

import jsonschema
import pytest

from ... import leaderboard
from ...leaderboard import BOARDS, STAFF, entries, printed, read_results, table
from ...suite.backend import Reply
from ...truth import MEMORY, TIME, Step, graded
from ..experiments.test_scripts import ROOT

SCHEMA = json.loads(Path(ROOT, "grader/judge/gradescope.schema.json").read_text(encoding="utf-8"))
TIME_NAME, MEMORY_NAME = (board.name for board in BOARDS)
STEPS = [Step(1, 1 + i, 512, False, 10.0, 5.0, i != 4) for i in range(5)]


def answers(*values) -> list[dict]:
    return [{"value": v, "raised": "", "offence": ""} for v in values]


def both(times, peaks) -> dict:
    return {TIME.function: answers(*times), MEMORY.function: answers(*peaks)}


def test_the_median_error_of_what_is_graded_as_gradescope_wants_it():
    assert len(graded(STEPS, TIME)) == 4  # the fifth does not repeat
    board = entries(both([10.1, 9.8, 10.4, 10.0], [5.0, 5.0, 5.05, 6.0, 6.0]), STEPS)
    assert board == [
        {"name": TIME_NAME, "value": 1.5, "order": "asc"},
        {"name": MEMORY_NAME, "value": 1.0, "order": "asc"},
    ]
    jsonschema.validate(board, SCHEMA["properties"]["leaderboard"])


def test_leaving_out_the_hard_ones_does_not_help():
    few = entries(both([10.0, 10.0, math.nan, None], [5.0] * 5), STEPS)
    assert [e["name"] for e in few] == [MEMORY_NAME]  # half of the times are unusable


@pytest.mark.parametrize("seen", [None, [], "x", answers(1.0)])
def test_an_answer_that_cannot_be_judged_has_no_entry(seen):
    assert entries({TIME.function: seen}, STEPS) == []


def test_ties_share_a_rank_and_the_next_one_skips():
    lines = table({"ada": 2.0, "bob": 1.0, "eve": 2.0, "dan": 3.5}, staff=2.0)
    assert [(x.rank, x.who) for x in lines] == [
        (1, "bob"),
        (None, STAFF),
        (2, "ada"),
        (2, "eve"),
        (4, "dan"),
    ]
    assert "| - | the staff's predictor | 2.0 |" in printed("time", lines)


def test_a_class_is_read_from_its_results(tmp_path):
    for who, value in (("ada", 2.0), ("bob", 1.0)):
        (tmp_path / who).mkdir()
        board = [{"name": TIME_NAME, "value": value, "order": "asc"}, {"name": "x", "value": 1}]
        text = json.dumps({"score": 1, "leaderboard": board})
        (tmp_path / who / "results.json").write_text(text, encoding="utf-8")
    (tmp_path / "eve").mkdir()
    (tmp_path / "eve" / "results.json").write_text("{}", encoding="utf-8")
    found = read_results(sorted(tmp_path.glob("*/results.json")))
    assert found == {TIME_NAME: {"ada": 2.0, "bob": 1.0}, MEMORY_NAME: {}}


def test_the_staff_predictor_has_its_place():
    from a1.perfmodel import predict_peak_gib, predict_step_ms
    from olmoe.config import OlmoeConfig

    steps = []
    for size in (1, 4, 8):
        step = (OlmoeConfig(n_layers=2), size, 1024, False)
        measured = predict_step_ms(*step) / 1.02, predict_peak_gib(*step)
        steps.append(Step(2, size, 1024, False, *measured, True))
    assert leaderboard.staff_entries(steps) == {TIME_NAME: 2.0, MEMORY_NAME: 0.0}


class Answering:
    """A backend whose hand-in predicts what was measured, or fails."""

    def __init__(self, steps, fails=()):
        self.steps, self.fails, self.groups = steps, fails, []

    def observe(self, probe, args, group=""):
        self.groups.append(group)
        if args["function"] in self.fails:
            return Reply(ended="took longer than 60 s")
        quantity = next(b.quantity for b in BOARDS if b.quantity.function == args["function"])
        known = {tuple(s.arguments): getattr(s, quantity.column) for s in self.steps}
        seen = [known[tuple(call)] for call in args["steps"]]
        return Reply(value=[{"value": v, "raised": "", "offence": ""} for v in seen])


def test_a_hand_in_is_asked_once_for_each_quantity():
    steps = leaderboard.of_this_term()
    exact = leaderboard.asked(Answering(steps))
    assert [(e["name"], e["value"]) for e in exact] == [(TIME_NAME, 0.0), (MEMORY_NAME, 0.0)]
    broken = Answering(steps, fails=(BOARDS[0].quantity.function,))
    assert [e["name"] for e in leaderboard.asked(broken)] == [MEMORY_NAME]
    # A process of its own: what is asked here is hidden, and nothing public may be told by it.
    assert set(broken.groups) == {"leaderboard"}


def test_without_a_truth_there_is_no_leaderboard(monkeypatch):
    def missing():
        raise leaderboard.NoTruthError("not measured")

    monkeypatch.setattr(leaderboard, "of_this_term", missing)
    assert leaderboard.asked(Answering([])) == []
