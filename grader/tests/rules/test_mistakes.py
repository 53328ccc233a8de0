"""Every mistake costs a point, by the rule that is there for it, in words that name it."""

from __future__ import annotations

import pytest

from ...proof.mistakes.mistake import MISTAKES
from ...proof.mistakes.tally import copy_with_plots, findings
from ...public.test_experiments import judge
from ...rules.rule import GROUPS, all_rules
from .sets import COMPLETE


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.name)
def test_mistake_is_found(mistake, tmp_path):
    folder = copy_with_plots(COMPLETE, tmp_path / "a1")
    mistake.make(folder)
    said = findings(folder, mistake.experiment)
    assert mistake.found_by in said
    failed = []
    for group in GROUPS:
        try:
            judge(folder, mistake.experiment, group)
        except pytest.fail.Exception as fail:
            failed.append(group)
            assert str(folder) not in str(fail)  # it is shown to the student, and may be kept
    assert failed


def test_every_rule_has_a_mistake():
    assert {m.found_by for m in MISTAKES} == {"files", *(one.name for one in all_rules())}


def test_every_experiment_has_every_group():
    for experiment in ("E2", "E3", "E4", "E5", "E6", "E7"):
        groups = {
            one.group
            for one in all_rules()
            for case in one.cases
            if f"E{_experiment_of(case[0])}" == experiment
        }
        assert groups == set(GROUPS)


def _experiment_of(artifact: str) -> int:
    from shared.artifacts import table

    return table(artifact).experiment


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gemm_without_a_sync", "waited for"),
        ("gemm_divided_twice", "divided out once"),
        ("gemm_in_microseconds", "milliseconds"),
        ("gemm_bytes_of_fp32", "two bytes"),
        ("gemm_counts_multiply_adds", "two FLOPs"),
        ("gemm_with_the_first_call", "first call"),
        ("sustained_in_milliseconds", "seconds"),
        ("passes_swapped", "mixed up"),
        ("naive_forgotten", "--moe-impl naive"),
        ("half_a_trace", "whole"),
        ("peak_in_mebibytes", "GiB"),
        ("memory_after_the_step", "moments"),
        ("stages_rc_is_stages", "no row with recompute yes"),
        ("recompute_does_nothing", "Coding 5"),
        ("warm_up_steps_counted", "warm-up"),
        ("default_grid_alone", "at least 20"),
        ("decimal_commas", "spreadsheet"),
        ("thousands_separators", "spreadsheet"),
    ],
)
def test_messages_name_the_mistake(name, words, tmp_path):
    mistake = next(m for m in MISTAKES if m.name == name)
    folder = copy_with_plots(COMPLETE, tmp_path / "a1")
    mistake.make(folder)
    said = findings(folder, mistake.experiment)
    assert any(words in message for messages in said.values() for message in messages)


def test_nothing_run(tmp_path):
    with pytest.raises(pytest.fail.Exception, match=r"not run yet: no gemm.csv.* run python a1/be"):
        judge(tmp_path / "nowhere", "E2", "order")


def test_other_checks_wait_for_the_files(folder):
    (folder / "gemm.csv").unlink()
    with pytest.raises(pytest.fail.Exception, match=r"not judged until E2\.1 finds that gemm\.csv"):
        judge(folder, "E2", "bounds")
    judge(folder, "E5", "bounds")


def test_missing_plot_costs_no_other_check(folder):
    (folder / "ops.png").unlink()
    with pytest.raises(pytest.fail.Exception, match=r"ops\.png is missing"):
        judge(folder, "E2", "completeness")
    judge(folder, "E2", "bounds")
