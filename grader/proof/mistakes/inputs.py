"""What spreadsheets, interruptions and careless copying do to a file."""

from __future__ import annotations

import csv
from pathlib import Path

from .mistake import mistake


def _rows(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


@mistake("E2", "files")
def cut_off(folder: Path) -> None:
    """The disk was full: the last line is half a line."""
    path = folder / "gemm.csv"
    path.write_bytes(path.read_bytes()[:-40])


@mistake("E2", "files")
def header_alone(folder: Path) -> None:
    """The script was stopped before its first row."""
    path = folder / "regimes.csv"
    path.write_text(path.read_text().splitlines()[0] + "\n")


@mistake("E2", "files")
def picture_of_another_kind(folder: Path) -> None:
    """Handed in a JPEG whose name ends in .png."""
    (folder / "roofline.png").write_bytes(b"\xff\xd8\xff\xe0" + bytes(5000))


@mistake("E2", "files")
def plots_left_behind(folder: Path) -> None:
    """Copied the tables from the cluster and not the plots."""
    (folder / "roofline.png").unlink(missing_ok=True)
    (folder / "ops.png").unlink(missing_ok=True)


@mistake("E4", "files")
def decimal_commas(folder: Path) -> None:
    """Opened and saved the table in a spreadsheet of a country that writes 612,5."""
    path = folder / "micro_batches.csv"
    lines = [";".join(c.replace(".", ",") for c in row) for row in _rows(path)]
    path.write_text("\n".join(lines) + "\n")


@mistake("E4", "files")
def commas_inside_quotes(folder: Path) -> None:
    """The same, saved with commas between quoted values."""
    path = folder / "micro_batches.csv"
    lines = [",".join(f'"{c.replace(".", ",")}"' for c in row) for row in _rows(path)]
    path.write_text("\n".join(lines) + "\n")


@mistake("E7", "files")
def thousands_separators(folder: Path) -> None:
    """Formatted a column in a spreadsheet: 130,334 tokens/s."""
    path = folder / "sweep.csv"
    header, *rows = _rows(path)
    at = header.index("tokens_per_s")
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(header)
        for row in rows:
            row[at] = f"{float(row[at]):,.0f}" if row[at] else ""
            lines.writerow(row)


@mistake("E5", "files")
def not_a_number(folder: Path) -> None:
    """Wrote NaN where nothing was measured."""
    path = folder / "stages.csv"
    header, *rows = _rows(path)
    rows[1][header.index("forward_ms")] = "NaN"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


@mistake("E5", "files")
def divided_by_zero(folder: Path) -> None:
    """Divided by a time of 0: inf tokens/s."""
    path = folder / "stages.csv"
    header, *rows = _rows(path)
    rows[-1][header.index("tokens_per_s")] = "inf"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


@mistake("E3", "files")
def table_forgotten(folder: Path) -> None:
    """Copied three of a recording's four tables."""
    (folder / "fwd_small_naive_cuda_api_sum.csv").unlink()


@mistake("E7", "files")
def column_deleted(folder: Path) -> None:
    """Deleted a column that seemed of no use."""
    path = folder / "sweep.csv"
    header, *rows = _rows(path)
    at = header.index("peak_gib")
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([row[:at] + row[at + 1 :] for row in [header, *rows]])
