"""The files that the experiments write: how they are written, and how they are read.

`artifacts.toml` declares every table once, `artifact_schema.py` holds them as records, whose
names are here too.  Experiments write through `write`, checks read through `read`, and the
documentation's table of files is `markdown()`.

Reading takes a file as it comes: with a byte order mark, CRLF, another order of columns, extra
columns, blank lines, or the header repeated where two files were joined.  What a spreadsheet has
rewritten (`;` between values, decimal commas, thousands separators) could be misread, so it is
refused.  Every message names the file, the line as an editor counts it, and the column.
"""

import contextlib
import csv
import errno
import math
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pandas as pd

from shared.artifact_schema import (
    OUT_OF_MEMORY,
    Column,
    Table,
    markdown,
    missing_rows,
    not_derived,
    of_experiment,
    recordings,
    table,
    tables,
    too_little,
)

__all__ = [
    "OUT_OF_MEMORY",
    "ArtifactError",
    "Column",
    "Table",
    "markdown",
    "missing_rows",
    "not_derived",
    "of_experiment",
    "read",
    "recordings",
    "table",
    "tables",
    "too_little",
    "write",
    "write_text",
]

MAX_PROBLEMS = 5  # shown; a broken file breaks the same way on every line
PREAMBLE_LINES = 40  # that nsys may print before a header
EXACT = 2**53  # up to here a float holds every whole number

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_GROUPED = re.compile(r"[+-]?\d{1,3}([,' \u00a0\u202f]\d{3})+(\.\d*)?")
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity|1\.#\w+)", re.IGNORECASE)


class ArtifactError(ValueError):
    """A file that cannot be read as what its name says.  `problems`: one line each, all of them."""

    def __init__(self, problems: list[str]):
        self.problems = problems
        shown = problems[:MAX_PROBLEMS]
        if len(problems) > len(shown):
            shown = [*shown, f"... and {len(problems) - len(shown)} more like these"]
        super().__init__("\n".join(shown))


# --- writing ---


def write(
    name: str, rows: Iterable[Mapping] | pd.DataFrame, path: Path, append: bool | None = None
) -> Path:
    """Write `rows` as artifact `name` to `path`, all of it or nothing.

    Args:
        rows: one mapping from column to value each.  None and a missing measurement are a blank.
            Floats are written with six significant digits, booleans as yes and no.
        append: keep the rows that are there (default: as the table is declared).  Two runs at once
            on the same machine wait for each other.

    Raises ValueError for a row that does not fit the table (a NaN, say), ArtifactError when the
    file to append to is not one of this table, OSError when the disk is full; the old file is then
    intact.
    """
    wanted, path = table(name), Path(path)
    if isinstance(rows, pd.DataFrame):
        rows = rows.astype(object).where(rows.notna(), None).to_dict("records")
    rows = [dict(row) for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    append = wanted.append if append is None else append
    with _locked(path) if append else contextlib.nullcontext():
        columns, old = [column.name for column in wanted.columns], ""
        if append and path.exists() and path.stat().st_size:
            header, _ = next(_records(path, wanted))
            place = {at: column for column, at in _matched(path, wanted, header).items()}
            columns = [place.get(at, "") for at in range(len(header))]
            old = path.read_text(encoding="utf-8-sig")
            old += "" if old.endswith("\n") else "\n"
        with _replacing(path) as out:
            out.write(old)
            lines = csv.writer(out, lineterminator="\n")
            if not old:
                lines.writerow(columns)
            for row in rows:
                cells = _cells(wanted, row)
                lines.writerow([cells.get(column, "") for column in columns])
    return path


def write_text(path: Path, text: str) -> Path:
    """Write a whole file or nothing of it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _replacing(path) as out:
        out.write(text)
    return path


def _cells(wanted: Table, row: Mapping) -> dict[str, str]:
    if unknown := set(row) - {column.name for column in wanted.columns}:
        raise ValueError(f"{wanted.file} has no column {', '.join(sorted(unknown))}")
    lost = wanted.has_status and row.get("status") == OUT_OF_MEMORY
    cells = {}
    for column in wanted.columns:
        value = row.get(column.name)
        if value is None:
            blank = column.blank or column.optional or (lost and column.type == "float")
            if not blank:
                raise ValueError(f"{wanted.file}: a row without {column.name}: {dict(row)}")
            cells[column.name] = ""
        elif column.type == "flag":
            cells[column.name] = value if value in ("yes", "no") else "yes" if value else "no"
        elif column.type == "float":
            if not math.isfinite(value):
                raise ValueError(f"{wanted.file}: {column.name} is {value}: {dict(row)}")
            cells[column.name] = f"{value:.6g}"
        else:
            cells[column.name] = str(int(value) if column.type == "int" else value)
    return cells


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator:
    """A text file that takes `path`'s place once everything is on the disk."""
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(number, "w", encoding="utf-8", newline="") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.chmod(name, 0o644)  # mkstemp's 0600 would keep the staff from reading a hand-in
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # Windows: nobody runs two sweeps there
        yield
        return
    with open(path.with_name(f".{path.name}.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as refused:  # a file system that cannot lock must not cost a measurement
            if refused.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
                raise
        yield


# --- reading ---


def read(path: Path, name: str | None = None) -> pd.DataFrame:
    """An artifact as a data frame with the declared columns, indexed by line number in the file.

    Text and flags ("yes", "no") are str, int is int64, float is float64; a value that may be blank
    and is comes as NaN.  Rows that say "out of memory" are kept.  `attrs` holds "file", the name,
    and "extra", the columns that nobody asked for.  `name` says which artifact it is where the
    file's own name does not.

    Raises ArtifactError, whose message names the file, the lines, the columns, and the command that
    makes the file.
    """
    path = Path(path)
    wanted = table(name or path.name)
    if not path.is_file():
        raise ArtifactError([f"{path.name} is missing: run {wanted.command}"])
    records = _records(path, wanted)
    header, _ = next(records)
    place = _matched(path, wanted, header)
    rows, lines, problems = [], [], []
    for cells, line in records:
        if len(rows) == wanted.max_rows:
            raise ArtifactError(
                [f"{path.name}, line {line}: more than {wanted.max_rows} rows; {_again(wanted)}"]
            )
        while len(cells) > len(header) and not cells[-1]:
            cells.pop()
        if len(cells) != len(header):
            problems.append(_wrong_length(path, line, cells, header))
            continue
        row, wrong = _values(path, wanted, place, cells, line)
        problems += wrong
        rows.append(row)
        lines.append(line)
    if problems:
        raise ArtifactError([*problems, _again(wanted).capitalize()])
    if not rows:
        raise ArtifactError([f"{path.name} has a header and no rows; {_again(wanted)}"])
    frame = pd.DataFrame(rows, index=pd.Index(lines, name="line"))
    frame.attrs = {
        "file": path.name,
        "extra": [h for i, h in enumerate(header) if i not in place.values()],
    }
    return frame


def _again(wanted: Table) -> str:
    return f"make it again with {wanted.command}, and do not open it in a spreadsheet"


def _records(path: Path, wanted: Table) -> Iterator[tuple[list[str], int]]:
    """The header, then every row with its line number: nothing blank, no repeated header."""
    header: list[str] | None = None
    try:
        with open(path, encoding="utf-8-sig", newline="") as source:
            reader, end = csv.reader(source), 0
            for raw in reader:
                line, end = end + 1, reader.line_num
                cells = [cell.strip() for cell in raw]
                if not any(cells) or cells == header:
                    continue
                if header is None:
                    if wanted.tool and line <= PREAMBLE_LINES and not _is_header(wanted, cells):
                        continue
                    _refuse_spreadsheet(path, wanted, cells)
                    header = cells
                yield cells, line
    except OSError as refused:
        raise ArtifactError([f"{path.name} cannot be read: {refused.strerror}"]) from None
    except UnicodeDecodeError:
        raise ArtifactError([f"{path.name} is not UTF-8 text; {_again(wanted)}"]) from None
    except csv.Error as broken:
        raise ArtifactError(
            [f"{path.name}, line {end + 1}: not a CSV file ({broken}); {_again(wanted)}"]
        ) from None
    if header is None:
        raise ArtifactError([f"{path.name} has no header: nothing was recorded; {_again(wanted)}"])


def _is_header(wanted: Table, cells: list[str]) -> bool:
    known = {name for column in wanted.columns for name in (column.name, *column.aliases)}
    return len(known & set(cells)) >= 2


def _refuse_spreadsheet(path: Path, wanted: Table, header: list[str]) -> None:
    text = ",".join(header)
    for separator, called in ((";", "';'"), ("\t", "tabs")):
        first = text.split(separator)[0].strip().strip('"')
        is_name = any(first in (c.name, *c.aliases) for c in wanted.columns)
        if separator in text and (is_name or first == "" or text.startswith("sep=")):
            raise ArtifactError(
                [f"{path.name}: its values are separated by {called}, as a spreadsheet saves them; "
                 + _again(wanted)]
            )  # fmt: skip


def _matched(path: Path, wanted: Table, header: list[str]) -> dict[str, int]:
    """Declared column -> its place in this file."""
    if twice := sorted({h for h in header if h and header.count(h) > 1}):
        raise ArtifactError([f"{path.name}: column {', '.join(twice)} is there twice"])
    found, missing = {}, []
    for column in wanted.columns:
        name = next((n for n in (column.name, *column.aliases) if n in header), None)
        if name is not None:
            found[column.name] = header.index(name)
        elif not column.optional:
            missing.append(column.name)
    if missing:
        raise ArtifactError(
            [f"{path.name}: no column {', '.join(missing)} (it has {', '.join(header)[:300]}); "
             + _again(wanted)]
        )  # fmt: skip
    return found


def _wrong_length(path: Path, line: int, cells: list[str], header: list[str]) -> str:
    if len(cells) > len(header):
        why = "a decimal comma or a thousands separator, perhaps"
    else:
        why = "the line was cut off"
    return f"{path.name}, line {line}: {len(cells)} values, but {len(header)} columns ({why})"


def _values(
    path: Path, wanted: Table, place: dict[str, int], cells: list[str], line: int
) -> tuple[dict, list[str]]:
    row, problems = {}, []
    status = cells[place["status"]] if wanted.has_status else ""
    for column in wanted.columns:
        if column.name not in place:
            continue
        text = cells[place[column.name]]
        value, wrong = _value(wanted, column, text, lost=status == OUT_OF_MEMORY)
        row[column.name] = value
        if wrong:
            problems.append(f"{path.name}, line {line}, column {column.name}: {wrong}")
    return row, problems


def _value(wanted: Table, column: Column, text: str, lost: bool) -> tuple[object, str]:
    """A cell's value and what is wrong with it ("" if nothing is)."""
    if text == "":
        missing = "" if column.type in ("text", "flag") else math.nan
        may_be = column.blank or column.optional or (lost and column.type == "float")
        return missing, "" if may_be else "is empty"
    if column.type == "text":
        return (text.removeprefix(":") if wanted.tool else text), ""
    if column.type == "flag":
        flag = {"yes": "yes", "no": "no", "true": "yes", "false": "no"}.get(text.lower())
        return flag or text, "" if flag else f"{_quoted(text)} is neither yes nor no"
    if wanted.tool and _GROUPED.fullmatch(text):
        text = re.sub("[,' \u00a0\u202f]", "", text)  # nsys prints 62,914,755 in some formats
    value, wrong = _number(text)
    if not wrong and column.type == "int":
        whole = abs(value) <= EXACT and value == int(value)
        wrong = "" if whole else f"{_quoted(text)} is not a whole number"
        value = int(value) if whole else value
    return value, wrong or _out_of_range(column, value, text)


def _number(text: str) -> tuple[float, str]:
    if not _NUMBER.fullmatch(text):
        return math.nan, _why_no_number(text)
    value = float(text)
    return (math.nan, f"{_quoted(text)} is not finite") if math.isinf(value) else (value, "")


def _out_of_range(column: Column, value: float, text: str) -> str:
    if column.positive and value <= 0:
        return f"{text} is not above 0"
    if column.min is not None and value < column.min:
        return f"{text} is below {column.min}"
    if column.max is not None and value > column.max:
        return f"{text} is above {column.max}"
    return ""


def _why_no_number(text: str) -> str:
    if _NOT_FINITE.fullmatch(text):
        return f"{_quoted(text)} is not a measurement"
    if re.fullmatch(r"[+-]?[\d.,' \u00a0\u202f]+%?", text):
        return f"{_quoted(text)} is written as a spreadsheet writes numbers, and could be misread"
    return f"{_quoted(text)} is not a number"


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
