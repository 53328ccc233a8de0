#!/usr/bin/env python
"""Renders the handout and the model answers from their templates and the staff's results.

    python staff/handout/render.py               write student/HANDOUT.md and staff/answers.md
    python staff/handout/render.py --check       say which of them is stale, and change nothing
    python staff/handout/render.py --html OUT    write the handout as one HTML page as well

Points, files and functions come from shared/assignment.toml, peaks from shared/gpus.toml, names of
the course from the site's table, and every printed example and every cited measurement from
staff/results/a1. A template states what it claims about the measurements (`{% do claim(...) %}`):
results that contradict a text stop the rendering instead of being printed beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import runpy
import sys
import tomllib
from pathlib import Path

import jinja2

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("staff", "student", ".")]  # run as a script

from a1 import other_gpu, perfmodel  # noqa: E402  (the solution: `staff` comes first)
from grader.truth import read_truth, truth_path  # noqa: E402
from olmoe.config import OlmoeConfig  # noqa: E402
from shared import artifacts  # noqa: E402
from shared.assignment import Assignment, Exercise, assignment  # noqa: E402
from shared.gpus import COURSE_GPU, gpu  # noqa: E402
from shared.site import site  # noqa: E402
from staff.handout import quoted  # noqa: E402
from staff.handout.reflow import reflow  # noqa: E402
from staff.handout.results import MissingResult, Results  # noqa: E402

HERE = Path(__file__).resolve().parent
RESULTS = ROOT / "staff" / "results" / "a1"
HANDOUT = ROOT / "student" / "HANDOUT.md"
ANSWERS = ROOT / "staff" / "answers.md"
PAGES = {  # template -> the page, and what it says about itself; students do not see staff/
    "HANDOUT.md.j2": (HANDOUT, "Made by a script. Please send corrections to the course staff."),
    "answers.md.j2": (ANSWERS, "Made by staff/handout/render.py: edit its templates, not this."),
}


class ClaimError(Exception):
    """The results contradict what a text says about them."""


def claim(holds: bool, what: str) -> None:
    """Stops the rendering unless the results bear out `what`, which the text states."""
    if not holds:
        raise ClaimError(
            f"the results no longer show that {what}: change the text or measure again"
        )


def quote(text: str) -> str:
    """Markdown as a block quotation, which is how a box is set."""
    return "\n".join(f"> {line}".rstrip() for line in text.strip().split("\n"))


def ran(example: str) -> str:
    """What a script of examples/ prints when it runs, here and now."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        runpy.run_path(str(HERE / "examples" / f"{example}.py"))
    return said.getvalue().rstrip()


def source(example: str) -> str:
    """The text of a script of examples/."""
    return (HERE / "examples" / f"{example}.py").read_text(encoding="utf-8").rstrip()


def minutes(number: int) -> str:
    """GPU time of an experiment as its box says it: `2 GPU-minutes`."""
    table = tomllib.loads((HERE / "durations.toml").read_text(encoding="utf-8"))
    seconds = sum(table["seconds"][str(number)].values())
    whole = max(1, -(-seconds // 60))
    return f"{whole} GPU-minute{'s' if whole > 1 else ''}"


def ten(value: float) -> int:
    """Rounded to tens, for a rough figure."""
    return 10 * round(value / 10)


def published_step(micro_batch_size: int, seqlen: int, recompute: bool = False) -> str:
    """A training step of two layers that was published for the L40, as a clause."""
    for step in read_truth(truth_path(hidden=False, gpu=gpu("NVIDIA L40"))):
        if step.arguments == [2, micro_batch_size, seqlen, recompute] and step.step_ms:
            how = " with recomputation" if recompute else ""
            return f"{micro_batch_size} × {seqlen}{how} took {step.step_ms:.1f} ms"
    raise MissingResult(f"no published step of 2 layers, {micro_batch_size} × {seqlen}")


def fmt(value: float, spec: str = ".1f") -> str:
    return format(value, spec)


def whole(value: float) -> str:
    """A number rounded to a whole one, thousands apart."""
    return f"{value:,.0f}"


def million(value: float) -> str:
    return f"{value / 1e6:,.1f} million"


def billion(value: float) -> str:
    return f"{value / 1e9:.2f} billion"


def where(exercise: Exercise) -> str:
    """What a coding exercise implements, as a list for the reader."""
    return ", ".join(f"`{name}`" for name in exercise.implements)


def environment() -> jinja2.Environment:
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        extensions=["jinja2.ext.do"],
        autoescape=False,  # Markdown, and all of it our own
    )
    for filter_ in (quote, ten, fmt, whole, million, billion, where):
        env.filters[filter_.__name__] = filter_
    return env


def context(results: Results) -> dict:
    """Everything that a template may name."""
    table: Assignment = assignment()
    return {
        "a": table,
        "part1": other_gpu.PART1,
        "published_step": published_step,
        "needed": artifacts.table("sweep").at_least,
        "ex": table.exercise,
        "gpu": COURSE_GPU,
        "l40": gpu("NVIDIA L40"),
        "rtx5090": gpu("NVIDIA GeForce RTX 5090"),
        "cfg": OlmoeConfig(),
        "pm": perfmodel,
        "r": results,
        "site": site(),
        "quoted": quoted,
        "claim": claim,
        "ran": ran,
        "source": source,
        "minutes": minutes,
    }


def render(results_folder: Path = RESULTS) -> dict[Path, str]:
    """Path -> text of every page.

    Raises ClaimError, MissingResult, or jinja2.TemplateError.
    """
    env, names = environment(), context(Results(results_folder))
    return {
        path: f"<!-- {origin} -->\n\n" + reflow(env.get_template(template).render(names))
        for template, (path, origin) in PAGES.items()
    }


def stale(pages: dict[Path, str]) -> list[str]:
    """Where the pages on disk differ from these, as a diff each."""
    found = []
    for path, text in pages.items():
        name = str(path.relative_to(ROOT))
        old = path.read_text(encoding="utf-8") if path.is_file() else ""
        if old != text:
            diff = difflib.unified_diff(
                old.splitlines(), text.splitlines(), name, f"{name}, rendered", lineterm="", n=0
            )
            found.append("\n".join(diff))
    return found


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if stale")
    parser.add_argument("--html", type=Path, metavar="OUT", help="write the handout as HTML, too")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the staff's results")
    args = parser.parse_args(argv)
    try:
        pages = render(args.results)
    except (ClaimError, MissingResult, jinja2.TemplateError) as wrong:
        at = f", {wrong.name} line {wrong.lineno}" if hasattr(wrong, "lineno") else ""
        sys.exit(f"render.py: {wrong}{at}")
    if args.check:
        if different := stale(pages):
            sys.exit("\n".join([*different, "stale: run python staff/handout/render.py"]))
        return
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    if args.html:
        from staff.handout import webpage

        args.html.write_text(webpage.page(pages[HANDOUT]), encoding="utf-8")
        print(f"wrote {args.html}")


if __name__ == "__main__":
    main()
