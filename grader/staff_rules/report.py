"""All rules over one hand-in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from shared.assignment import assignment

from ..rules.experiment import Results, load
from . import agreement, digits, formulas, likeness, sidecars
from .note import Note

MAX_LINES = 8  # a hand-in with more than these is looked at anyway

RULES: tuple[Callable[[Results], list[Note]], ...] = (
    digits.timer_tick,
    digits.stages_tick,
    digits.rounded,
    digits.last_digits,
    digits.repeated_values,
    digits.derived_after_rounding,
    formulas.roofline,
    formulas.linear_steps,
    formulas.out_of_line,
    formulas.constant_ratio,
    formulas.interpolated,
    formulas.too_orderly,
    agreement.step_and_stages,
    agreement.optimizer_time,
    agreement.same_step,
    agreement.micro_batches_and_step,
    agreement.single_operations,
    agreement.sustained_work,
    agreement.recording_and_trace,
    sidecars.one_gpu,
    sidecars.overlapping_runs,
    sidecars.no_sidecar,
    sidecars.other_code,
    sidecars.too_quick,
)


def notes(
    results: Results, others: Mapping[str, Results] | None = None, staff: Results | None = None
) -> list[Note]:
    """Everything that the rules have to say.  A rule that fails says so and stops no other.

    others: whom to compare with, by name.  staff: the staff's results, if there are any.
    """
    jobs = [(rule.__name__, lambda rule=rule: rule(results)) for rule in RULES]
    if others:
        jobs.append(("same_as", lambda: likeness.same_as(results, others)))
    if staff:
        jobs.append(("unlike_staff", lambda: likeness.unlike_staff(results, staff)))
    found = []
    for name, job in jobs:
        try:
            found += job()
        except Exception as error:  # the files are anyone's, and so is what is in them
            what = f"the rule failed: {type(error).__name__}: {str(error)[:100]}"
            found.append(Note(name, "all files", what))
    return found


def staff_notes(results_dir: Path | str) -> list[str]:
    """One line per note for the staff's part of the report; never raises.

    Compares with the staff's results where these are in the repository.  Files larger than any
    honest one are passed over, so this takes less than a second.
    """
    try:
        folder = Path(results_dir)
        committed = sidecars.STAFF_RESULTS / assignment().name
        staff = None
        if committed.is_dir() and committed.resolve() != folder.resolve():
            staff = load(committed)
        others = {"the staff's results": staff} if staff else None
        lines = [note.line() for note in notes(load(folder), others, staff)]
    except Exception as error:
        return [f"the rules for staff failed: {type(error).__name__}: {str(error)[:200]}"]
    if len(lines) > MAX_LINES:
        lines[MAX_LINES:] = [f"... and {len(lines) - MAX_LINES} more"]
    return lines
