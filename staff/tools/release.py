#!/usr/bin/env python
"""Makes the students' repository, and later commits corrections to it.

    python staff/tools/release.py DIR [--message TEXT]

DIR is new or empty: the files are written there, and `git init` is yours. Or it is the top of a git
checkout of an earlier release, with nothing uncommitted: one commit is added, which a student's
`git pull --no-rebase --no-edit` merges. Nothing is pushed.

The files are those of the table in grader/release.py. What was built is searched for leaks first
(leaks.py); if there is one, DIR stays as it was.
"""

from __future__ import annotations

import argparse
import ast
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from datetime import UTC
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)  # this file is run as a script

from grader.release import PARTS, Part, files_of  # noqa: E402
from shared import assignment_json  # noqa: E402
from shared.assignment import assignment  # noqa: E402
from shared.site import Site, site  # noqa: E402
from staff.tools import leaks, stubs  # noqa: E402

PLACEHOLDER = re.compile(r"@([a-z]\w*)@")
EXECUTABLE = (".sh", ".sbatch")
OWN = ("olmoe", "a1", "shared", "grade", "grader", "staff", "student")  # our packages
REQUIREMENTS = "requirements.txt"


class ReleaseError(Exception):
    """No release can be made; the message says why and what to do. Nothing was written."""


# ---- Building -----------------------------------------------------------------------------------


def words(where: Site) -> dict[str, str]:
    """What may stand between @ and @ in a file that is filled in."""
    table, due = assignment(), where.course.due
    kind = f"gpu:{where.slurm.gpu}:1" if where.slurm.gpu else "gpu:1"
    return where.words() | {
        "assignment": table.name,
        "course": table.course,
        "title": table.title,
        "gres": kind,
        "due_utc": due.astimezone(UTC).isoformat() if due else "",
    }


def filled(text: str, facts: dict[str, str], name: str) -> str:
    """`text` with the facts in it. A line #SBATCH --x=@fact@ goes where the fact is empty."""
    lines = []
    for line in text.splitlines(keepends=True):
        names = PLACEHOLDER.findall(line)
        if unknown := [n for n in names if n not in facts]:
            raise ReleaseError(f"{name}: @{unknown[0]}@ is no fact of shared/site.toml")
        if line.startswith("#SBATCH") and names and not any(facts[n] for n in names):
            continue
        lines.append(PLACEHOLDER.sub(lambda m: facts[m[1]], line))
    return "".join(lines)


def requirements() -> str:
    """What pip needs to be told for a machine of one's own."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    why = "# For `make env`, on a machine of your own. On the cluster there is nothing to install."
    return "\n".join([why, *project["dependencies"]]) + "\n"


def build(folder: Path, parts: tuple[Part, ...] = PARTS) -> list[str]:
    """Writes the release into `folder`, which is empty, and returns the names of its files.

    Raises ReleaseError; what is in `folder` then is worth nothing.
    """
    try:
        fresh = stubs.build(ROOT)
    except stubs.StubError as error:
        raise ReleaseError(f"no stubs: {error}") from None
    if stubs.outdated(fresh, ROOT):
        raise ReleaseError("the stubs are not what staff/ makes: run make stubs")
    if assignment_json.text(assignment()) != assignment_json.FILE.read_text(encoding="utf-8"):
        raise ReleaseError("assignment.json is out of date: run python -m shared.assignment_json")
    facts = words(site())
    names = []
    for source, target, part in files_of(parts):
        if not source.is_file():
            if part.optional:
                continue
            raise ReleaseError(
                f"{source.relative_to(ROOT)} does not exist, but grader/release.py lists it"
            )
        path = folder / target
        path.parent.mkdir(parents=True, exist_ok=True)
        if part.filled:
            text = filled(source.read_text(encoding="utf-8"), facts, target)
            path.write_text(text, encoding="utf-8", newline="\n")
        else:
            shutil.copyfile(source, path)
        path.chmod(0o755 if path.suffix in EXECUTABLE else 0o644)
        names.append(target)
    (folder / REQUIREMENTS).write_text(requirements(), encoding="utf-8", newline="\n")
    names.append(REQUIREMENTS)
    if missing := unmet_imports(folder, names):
        raise ReleaseError(
            "not in the table of grader/release.py, but needed:\n" + "\n".join(missing)
        )
    birds = leaks.canaries(ROOT)
    if found := leaks.leaks(folder, names, birds):
        shown = "\n".join(f"  {leak}" for leak in found[:20])
        raise ReleaseError(
            f"the release would leak ({len(found)} places):\n{shown}\nMend the file or the table; "
            "a line that both may have goes into ALLOWED in staff/tools/leaks.py, with a reason"
        )
    return sorted(names)


def unmet_imports(folder: Path, names: Iterable[str]) -> list[str]:
    """Imports of the project's own modules, in files of the release, that the release lacks."""
    names, found = set(names), []
    for name in sorted(n for n in names if n.endswith(".py")):
        tree = ast.parse((folder / name).read_text(encoding="utf-8"), name)
        for node in ast.walk(tree):
            for wanted in _imported(node, name):
                inside = f"{wanted}.py" in names or any(n.startswith(f"{wanted}/") for n in names)
                if wanted.split("/")[0] in OWN and not inside and not _defined(folder, wanted):
                    found.append(f"  {name}, line {node.lineno}: {wanted.replace('/', '.')}")
    return found


def _imported(node: ast.AST, name: str) -> list[str]:
    """Modules (as paths without .py) that an import statement in file `name` means."""
    if isinstance(node, ast.Import):
        return [alias.name.replace(".", "/") for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    around = name.split("/")[: -node.level] if node.level else []
    base = "/".join([*around, *(node.module or "").split(".")]).rstrip("/")
    return [base] if node.module else [f"{base}/{alias.name}" for alias in node.names]


def _defined(folder: Path, wanted: str) -> bool:
    """Whether the last name of `wanted` is no module, but something that its package defines."""
    package, _, last = wanted.rpartition("/")
    file = folder / package / "__init__.py"
    return bool(package) and file.is_file() and bool(re.search(rf"\b{last}\b", file.read_text()))


# ---- Delivering ---------------------------------------------------------------------------------


def deliver(built: Path, names: list[str], target: Path, message: str) -> str:
    """Puts a finished release into `target` and says what was done. Raises ReleaseError."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        shutil.copytree(built, target, dirs_exist_ok=True)
        return f"wrote {len(names)} files to {target}"
    if not (target / ".git").exists():
        raise ReleaseError(f"{target} is neither empty nor a git checkout of an earlier release")
    _check_checkout(target)
    try:
        return _commit(built, names, target, message)
    except (ReleaseError, OSError):
        _git(target, "reset", "--quiet", "--hard")  # there was nothing uncommitted before
        raise


def _commit(built: Path, names: list[str], target: Path, message: str) -> str:
    tracked = set(filter(None, _git(target, "ls-files", "-z").split("\0")))
    for name in sorted(tracked - set(names)):
        _git(target, "rm", "--quiet", "--", name)
    for name in names:
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(built / name, path)
        path.chmod((built / name).stat().st_mode & 0o777)
    _git(target, "add", "--force", "--", *names)
    if not _git(target, "status", "--porcelain").strip():
        return f"{target} is up to date: nothing to commit"
    _git(target, "commit", "--quiet", "--message", message)
    what = _git(target, "log", "-1", "--format=%h %s", "--shortstat").strip()
    return f"committed to {target}: {what}"


def _check_checkout(target: Path) -> None:
    top = Path(_git(target, "rev-parse", "--show-toplevel").strip())
    if top.resolve() != target.resolve():
        raise ReleaseError(f"{target} is a folder inside the checkout {top}: give its top")
    if _git(target, "status", "--porcelain").strip():
        raise ReleaseError(f"{target} has changes that are not committed: commit or remove them")
    known = _git(target, "ls-files").splitlines()
    if known and "shared/assignment.toml" not in known:
        raise ReleaseError(f"{target} is a checkout of something else")
    if found := leaks.history_leaks(target, leaks.canaries(ROOT)):
        raise ReleaseError(f"{target} may not be published: {found[0]}")


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(f"git {arguments[0]} in {folder}: {done.stderr.strip()}")
    return done.stdout


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dir", help="new, empty, or a checkout of an earlier release")
    parser.add_argument("--message", default="", help="of the commit: what was corrected")
    options = parser.parse_args(arguments)
    if not options.dir:
        parser.error("give a folder: make release DIR=FOLDER")
    message = options.message or f"{assignment().title}: release {assignment().release}"
    try:
        with tempfile.TemporaryDirectory(prefix="release-") as folder:
            names = build(Path(folder))
            Path(folder).chmod(0o755)
            print(deliver(Path(folder), names, Path(options.dir), message))
    except (ReleaseError, OSError) as error:
        print(f"No release: {error}", file=sys.stderr)
        return 1
    if "grade/a1_truth.csv" not in names:
        print("note: there is no truth yet for the course's GPU, so C9 cannot be tested")
    return 0


if __name__ == "__main__":
    sys.exit(main())
