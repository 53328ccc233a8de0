"""What the experiments' files hold: `artifacts.toml` as typed records."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path

import pandas as pd

OUT_OF_MEMORY = "out of memory"
MAX_ROWS = 5000


@dataclass(frozen=True)
class Column:
    """One column of a table, as `artifacts.toml` declares it."""

    name: str
    type: str  # text, int, float, flag
    what: str
    unit: str = ""
    role: str = "measured"  # key, measured
    min: float | None = None
    max: float | None = None
    positive: bool = False
    blank: bool = False
    optional: bool = False
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.type not in ("text", "int", "float", "flag") or self.role not in (
            "key",
            "measured",
        ):
            raise ValueError(f"column {self.name}: unknown type {self.type} or role {self.role}")


@dataclass(frozen=True)
class Table:
    """One artifact: a CSV file under results/a1/."""

    name: str  # gemm; a recording's tables are fwd_small_ranges and so on
    file: str
    what: str
    command: str
    columns: tuple[Column, ...]
    experiment: int = 0
    rows: Mapping[str, tuple] = field(default_factory=dict)
    at_least: Mapping[str, int] = field(default_factory=dict)
    derived: Mapping[str, str] = field(default_factory=dict)
    tolerance: float = 0.0  # relative
    max_rows: int = MAX_ROWS
    append: bool = False
    tool: str = ""  # nsys: another program's report
    recording: str = ""

    def __getitem__(self, column: str) -> Column:
        for candidate in self.columns:
            if candidate.name == column:
                return candidate
        raise KeyError(f"{self.file} has no column {column}")

    @property
    def has_status(self) -> bool:
        """Whether a row may say that its configuration did not fit in memory."""
        return any(column.name == "status" for column in self.columns)

    def required_rows(self) -> Iterator[dict]:
        """The keys of every row that must be there."""
        for values in product(*self.rows.values()):
            yield dict(zip(self.rows, values, strict=True))


@cache
def _declared() -> dict:
    return tomllib.loads(Path(__file__).with_name("artifacts.toml").read_text(encoding="utf-8"))


@cache
def tables() -> dict[str, Table]:
    """Every artifact by name; the tables of a recording once for each recording."""
    declared, found = _declared(), {}
    for name, declaration in declared["tables"].items():
        entry = dict(declaration)
        columns = declared["tables"][entry.pop("same_columns_as", name)]["columns"]
        entry["columns"] = tuple(
            Column(**column | {"aliases": tuple(column.get("aliases", ()))}) for column in columns
        )
        if "{recording}" not in entry["file"]:
            found[name] = Table(name, **entry)
            continue
        for recording, made in declared["recordings"].items():
            rows = {"range": declared["ranges_of"][recording]} if name == "ranges" else {}
            own = {"file": entry["file"].format(recording=recording), "recording": recording}
            full = f"{recording}_{name}"
            found[full] = Table(full, **entry | made | own | {"rows": rows})
    return found


def table(name: str) -> Table:
    """The artifact called `name` ("gemm", "fwd_small_ranges") or whose file is called so.

    A recording of the student's own ("demo_ranges.csv") has the columns of any other recording and
    no rows that must be there.  Raises KeyError for anything else.
    """
    stem = Path(name).name.removesuffix(".csv")
    if stem in tables():
        return tables()[stem]
    for kind, entry in _declared()["tables"].items():
        if "{recording}" in entry["file"] and stem.endswith(f"_{kind}"):
            like = next(t for t in tables().values() if t.name.endswith(f"_{kind}"))
            recording = stem.removesuffix(f"_{kind}")
            made = {"name": stem, "file": f"{stem}.csv", "recording": recording}
            made |= {"command": f"a1/nsys.sh {recording}", "experiment": 0, "rows": {}}
            return Table(**{**like.__dict__, **made})
    raise KeyError(f"no experiment writes {name}: there are {', '.join(sorted(tables()))}")


def of_experiment(experiment: int) -> list[Table]:
    """The artifacts that an experiment asks for."""
    return [t for t in tables().values() if t.experiment == experiment]


def recordings() -> dict[str, dict]:
    """The recordings that the experiments ask for: name -> {"experiment": int, "command": str}."""
    return _declared()["recordings"]


# --- what a frame must hold, as far as it is declared ---


def missing_rows(wanted: Table, frame: pd.DataFrame) -> list[dict]:
    """The keys of the required rows that `frame` lacks, in the order declared."""
    if not wanted.rows:
        return []
    keys = list(wanted.rows)
    there = set(map(tuple, frame[keys].itertuples(index=False)))
    return [row for row in wanted.required_rows() if tuple(row.values()) not in there]


def too_little(wanted: Table, frame: pd.DataFrame) -> list[str]:
    """What `at_least` asks for and `frame` lacks: "12 measured rows (at least 20)"."""
    if wanted.has_status:
        frame = frame[frame["status"] != OUT_OF_MEMORY]
    counts = {"rows": len(frame)} | {c: frame[c].nunique() for c in wanted.at_least if c != "rows"}
    named = {"rows": "measured rows"}
    return [
        f"{counts[what]} {named.get(what, 'different values of ' + what)} (at least {least})"
        for what, least in wanted.at_least.items()
        if counts[what] < least
    ]


def not_derived(wanted: Table, frame: pd.DataFrame) -> list[str]:
    """Cells that do not follow from the others of their row, one message each.

    The tolerance is relative, and covers the six digits that a file keeps; rows without a
    measurement are passed over.
    """
    found = []
    for column, formula in wanted.derived.items():
        expected = frame.eval(formula).astype(float)
        given = frame[column].astype(float)
        off = (given - expected).abs() > wanted.tolerance * expected.abs()
        for line in frame.index[off & given.notna() & expected.notna()]:
            found.append(
                f"{wanted.file}, line {line}, column {column}: {given[line]:.6g}, but {formula} "
                f"is {expected[line]:.6g}"
            )
    return found


# --- the documentation's table ---


def markdown() -> str:
    """Every artifact and its columns, as the documentation shows them."""
    out = ["| file | experiment | made by | holds |", "| --- | --- | --- | --- |"]
    declared = _declared()["tables"]
    for name, entry in declared.items():
        one = tables().get(name)
        file = entry["file"].replace("{recording}", "NAME")
        experiment = ", ".join(
            str(n) for n in sorted({one.experiment} if one else {3, 6}) if n
        )  # fmt: skip
        command = entry["command"] if one else "a1/nsys.sh NAME ..."
        out.append(f"| `{file}` | {experiment or 'none'} | `{command}` | {entry['what']} |")
    for name, entry in declared.items():
        if "same_columns_as" in entry:
            continue
        like = [n for n, e in declared.items() if e.get("same_columns_as") == name]
        files = [declared[n]["file"].replace("{recording}", "NAME") for n in (name, *like)]
        out += ["", f"**{', '.join(f'`{file}`' for file in files)}**", ""]
        out += ["| column | unit | meaning |", "| --- | --- | --- |"]
        sample = tables().get(name) or next(
            t for t in tables().values() if t.name.endswith(f"_{name}")
        )
        for column in sample.columns:
            notes = column.what + (" (may be blank)" if column.blank else "")
            out.append(f"| `{column.name}` | {column.unit or column.type} | {notes} |")
    return "\n".join(out) + "\n"
