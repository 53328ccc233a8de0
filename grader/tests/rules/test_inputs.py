"""Files as they come: the right verdict, or a message that names file, line and column."""

from __future__ import annotations

import csv
import io
import random
import re

import pytest

from ...proof.mistakes.tally import EXPERIMENTS, findings
from ...rules.completeness import SUSTAINED_S
from .sets import lost

# --- harmless ---


def crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


def byte_order_mark(text: str) -> str:
    return "\ufeff" + text


def blank_lines_at_the_end(text: str) -> str:
    return text + "\n,,\n\n"


def _table(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def _text(rows: list[list[str]], **style) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n", **style).writerows(rows)
    return out.getvalue()


def columns_reversed(text: str) -> str:
    return _text([row[::-1] for row in _table(text)])


def an_extra_column(text: str) -> str:
    header, *rows = _table(text)
    return _text([[*header, "remark"], *([*row, "mine, not yours"] for row in rows)])


def everything_quoted(text: str) -> str:
    return _text(_table(text), quoting=csv.QUOTE_ALL)


def spaces_around(text: str) -> str:
    return _text([[f" {cell} " for cell in row] for row in _table(text)])


HARMLESS = [crlf, byte_order_mark, blank_lines_at_the_end, columns_reversed, an_extra_column,
            everything_quoted, spaces_around]  # fmt: skip


@pytest.mark.parametrize("change", HARMLESS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("key", EXPERIMENTS)
def test_harmless(folder, key, change):
    for path in folder.glob("*.csv"):
        text = path.read_bytes().decode()
        path.write_bytes(change(text).encode())
    assert lost(folder, [key]) == {}


# --- refused, with file, line and column ---


@pytest.mark.parametrize(
    "cell", ["NaN", "inf", "-inf", "1,234", "0,5", "1 234", "12%", "n/a", "1e400", "-3", "0x10"]
)
@pytest.mark.parametrize(
    ("file", "column", "key"),
    [
        ("gemm.csv", "ms", "E2"),
        ("fwd_small_ranges.csv", "gpu_ms_per_step", "E3"),
        ("micro_batches.csv", "step_ms", "E4"),
        ("stages_rc.csv", "forward_ms", "E5"),
        ("sweep.csv", "tokens_per_s", "E7"),
    ],
)
def test_cells_that_are_no_measurements(folder, file, column, key, cell):
    path = folder / file
    rows = _table(path.read_text())
    rows[2][rows[0].index(column)] = cell
    path.write_text(_text(rows))
    said = findings(folder, key)["files"]
    assert any(m.startswith(f"{file}, line 3, column {column}: ") for m in said)


def test_thousands_of_nsys_are_read(folder):
    """nsys itself prints 62,914,755 in some formats: no spreadsheet did that."""
    path = folder / "fwd_small_cuda_gpu_kern_sum.csv"
    rows = _table(path.read_text())
    at = rows[0].index("Total Time (ns)")
    for row in rows[1:]:
        row[at] = f"{int(row[at]):,}"
    path.write_text(_text(rows))
    assert lost(folder, ["E3"]) == {}


def test_nsys_of_other_releases(folder):
    """Ranges with and without a colon, preamble lines, older names of columns."""
    path = folder / "train_nvtx_gpu_proj_trace.csv"
    path.write_text(path.read_text().replace("\n:", "\n"))
    path = folder / "train_cuda_gpu_kern_sum.csv"
    text = path.read_text().replace("Avg (ns)", "Average (ns)").replace("Time (%)", "Time(%)")
    path.write_text(
        "Processing [reports/a1/train.sqlite] with [cuda_gpu_kern_sum.py]...\n\n" + text
    )
    assert lost(folder, ["E6"]) == {}


def test_rows_of_two_runs(folder):
    path = folder / "ops.csv"
    header, *rows = path.read_text().splitlines(keepends=True)
    path.write_text(header + "".join(rows) + header + "".join(rows))
    said = findings(folder, "E2")
    assert said.keys() == {"no_row_is_there_twice"}
    assert said["no_row_is_there_twice"][0].startswith("ops.csv, lines 2 and 67: copy, tensor_byte")


def test_two_sustained_runs(folder):
    path = folder / "gemm_sustained.csv"
    header, *rows = path.read_text().splitlines(keepends=True)
    path.write_text(header + "".join(rows + rows))
    said = findings(folder, "E2")["groups_are_of_equal_work"]
    assert "does not come after" in said[0]


@pytest.mark.parametrize("key", EXPERIMENTS)
def test_headers_alone(folder, key):
    for path in folder.glob("*.csv"):
        path.write_text(path.read_text().splitlines()[0] + "\n")
    said = findings(folder, key)
    assert said.keys() == {"files"}
    assert all("has a header and no rows" in message for message in said["files"])


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\x00" * 100, b"\xff\xfe1\x00", b"PK\x03\x04"])
@pytest.mark.parametrize("key", EXPERIMENTS)
def test_no_table_at_all(folder, key, content):
    for path in folder.glob("*.csv"):
        path.write_bytes(content)
    said = findings(folder, key)
    assert said.keys() == {"files"}


@pytest.mark.parametrize("file", ["gemm.csv", "fwd_small_nvtx_gpu_proj_trace.csv"])
def test_fifty_megabytes_of_rows(folder, file):
    path = folder / file
    header, *rows = path.read_text().splitlines(keepends=True)
    with path.open("w") as out:
        out.write(header)
        size, block = 0, "".join(rows)
        while size < 50_000_000:
            size += out.write(block)
    said = findings(folder, "E2" if file == "gemm.csv" else "E3")["files"]
    assert re.match(rf"{re.escape(file)}, line \d+: more than \d+ rows", said[0])


@pytest.mark.parametrize("kind", ["folder", "link to nowhere", "no permission to read"])
def test_files_that_are_none(folder, kind):
    path = folder / "gemm.csv"
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "link to nowhere":
        path.symlink_to(folder / "elsewhere.csv")
    else:
        path.write_bytes(b"")
        path.chmod(0)
    assert "gemm.csv" in findings(folder, "E2")["files"][0]


@pytest.mark.parametrize(
    ("picture", "words"),
    [
        (b"", "is not a PNG"),
        (b"\x89PNG\r\n\x1a\n", "is not a PNG"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01", "1 x 1 pixels"),
        (b"<html>", "is not a PNG"),
    ],
)
def test_pictures(folder, picture, words):
    (folder / "micro_batches.png").write_bytes(picture)
    assert words in findings(folder, "E4")["files"][0]


# --- whatever it is, nothing crashes ---

NASTY = ["", "0", "-1", "1e308", "1e-308", "9007199254740992", "9" * 30, "yes", "no", "ok", "step",
         "out of memory", "layers.0", "16", "1", "0.0000001", "\u0664\u0662", "'; --", "=1+1", "%s",
         "nan", ":", "(backward)", "recompute.layers.*", "e", "NVIDIA H200"]  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_mangled_tables(folder, seed):
    """Cells, rows and columns at random: every rule ends, in messages or in none."""
    draw = random.Random(seed)
    key = draw.choice(["E2", "E4", "E5", "E7", "E2", "E4", "E5", "E7", "E3", "E6"])
    prefix = {"E2": ("gemm", "ops", "regimes"), "E3": ("fwd",), "E4": ("micro",), "E5": ("stages",)}
    prefix |= {"E6": ("train",), "E7": ("sweep",)}
    for path in folder.glob("*.csv"):
        if not path.name.startswith(prefix[key]) or draw.random() < 0.3:
            continue
        header, *rows = _table(path.read_text())
        for _ in range(draw.choice([1, 3, 30])):
            what = draw.random()
            if what < 0.7:
                rows[draw.randrange(len(rows))][draw.randrange(len(header))] = draw.choice(NASTY)
            elif what < 0.85:
                draw.shuffle(rows)
            elif len(rows) > 1:
                rows.pop(draw.randrange(len(rows)))
        path.write_text(_text([header, *rows]))
    for messages in findings(folder, key).values():
        assert all(isinstance(m, str) and "\n" not in m and m for m in messages)


@pytest.mark.parametrize("value", [1e308, 5e-324, 2**53])
@pytest.mark.parametrize("key", ["E2", "E4", "E5", "E7"])
def test_extreme_numbers(folder, key, value):
    """Every measured and key column at once at the end of what a number can be."""
    for path in folder.glob("*.csv"):
        if path.name.startswith(("fwd", "train")):
            continue
        header, *rows = _table(path.read_text())
        for row in rows:
            for i, cell in enumerate(row):
                if re.fullmatch(r"[\d.]+", cell):
                    row[i] = repr(value) if "." in cell or value != 2**53 else str(2**53)
        path.write_text(_text([header, *rows]))
    assert findings(folder, key)


def test_sustained_limit_is_below_what_is_run():
    assert SUSTAINED_S < 6
