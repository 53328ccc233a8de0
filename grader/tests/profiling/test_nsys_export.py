"""Reading what nsys wrote, in all the forms in which it has been seen."""

import csv
import io
import json

import pytest

from a1.nsys_export import (
    CALL_COLUMNS,
    KERNEL_COLUMNS,
    RANGE_COLUMNS,
    NsysExport,
    read_ranges,
    read_report,
)
from a1.recording import RecordingError

from .sample import (
    H200,
    MS,
    RANGE_HEADER,
    SAMPLES,
    STREAM,
    metric_values,
    range_csv,
    sqlite_export,
    train_ops,
    train_ranges,
)

RANGES = SAMPLES / "demog_nvtx_gpu_proj_trace.csv"
KERNELS = SAMPLES / "demog_cuda_gpu_kern_sum.csv"
CALLS = SAMPLES / "demog_cuda_api_sum.csv"


# --- real files -----------------------------------------------------------------------------------


def test_ranges_of_a_real_recording():
    ranges = read_ranges(RANGES)
    assert len(ranges) == 36
    forward = [r for r in ranges if r.name == "forward"]
    assert [r.span for r in forward] == [(16991620, 60967053), (157472840, 169575387)]
    assert [r.gpu_ops for r in forward] == [321, 321]
    assert {r.name for r in ranges} - {"forward"} == {
        "CCCL:cub::DeviceScan::InclusiveScan",
        "CCCL:cub::DeviceRadixSort",
    }


def test_kernels_of_a_real_recording():
    kernels = read_report(KERNELS, KERNEL_COLUMNS)
    with KERNELS.open(newline="") as source:  # no preamble, no surprises: the csv module alone
        plain = list(csv.DictReader(source))
    assert [k["Name"] for k in kernels] == [row["Name"] for row in plain]
    assert [k["Instances"] for k in kernels] == [int(row["Instances"]) for row in plain]
    assert sum("," in k["Name"] for k in kernels) > 20


def test_calls_of_a_real_recording():
    calls = {c["Name"]: c for c in read_report(CALLS, CALL_COLUMNS)}
    assert calls["cudaLaunchKernel"] == {
        "Name": "cudaLaunchKernel", "Total Time": 37832622, "Num Calls": 1073
    }  # fmt: skip


# --- the same file as other releases and other tools leave it -------------------------------------


def with_preamble(text):
    return (
        "Generating SQLite file \"reports/a1/demo.sqlite\" from 'demo.nsys-rep'\n"
        "Processing [demo.sqlite] with [nvtx_gpu_proj_trace.py]... \n\n"
        '"an unclosed quotation mark\n' + text
    )


def with_separators(text):
    rows = list(csv.reader(io.StringIO(text)))
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(rows[0])
    for row in rows[1:]:
        writer.writerow([row[0], *(f"{int(c):,}" for c in row[1:5]), *row[5:]])
    return out.getvalue()


def with_other_column_order(text):
    rows = [[*row[::-1], "x"] for row in csv.reader(io.StringIO(text))]
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()


def in_microseconds(text):
    rows = list(csv.reader(io.StringIO(text)))
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([h.replace("(ns)", "(us)") for h in rows[0]])
    for row in rows[1:]:
        writer.writerow([row[0], *(f"{int(c) / 1000:.3f}" for c in row[1:5]), *row[5:]])
    return out.getvalue()


VARIATIONS = {
    "CRLF and a trailing blank line": lambda text: text.replace("\n", "\r\n") + "\r\n",
    "a byte order mark": lambda text: "\ufeff" + text,
    "a preamble": with_preamble,
    "thousands separators": with_separators,
    "another column order, and one column more": with_other_column_order,
    "microseconds": in_microseconds,
    "units without parentheses' company": lambda text: text.replace(" (ns)", "(ns)"),
    "no unit": lambda text: text.replace(" (ns)", ""),
    "older names of columns": lambda text: text.replace("NumGPUOps", "Num GPU Ops").replace(
        "Projected", "Proj"
    ),
    "no colon before names": lambda text: text.replace("\n:", "\n"),
}


@pytest.mark.parametrize("variation", VARIATIONS)
def test_a_variation_reads_the_same(variation, tmp_path):
    path = tmp_path / "demo_nvtx_gpu_proj_trace.csv"
    changed = VARIATIONS[variation](RANGES.read_text())
    assert changed != RANGES.read_text()
    path.write_bytes(changed.encode())
    assert read_ranges(path) == read_ranges(RANGES)


@pytest.mark.parametrize("content", [None, "", "\n\n", RANGES.read_text().split("\n")[0] + "\n"])
def test_a_report_about_nothing_has_no_rows(content, tmp_path):
    """Not zero: a table of zeros would pass for a measurement."""
    path = tmp_path / "demo_nvtx_gpu_proj_trace.csv"
    if content is not None:
        path.write_text(content)
    assert read_ranges(path) == []


def test_a_missing_column_is_an_error(tmp_path):
    path = tmp_path / "demo_nvtx_gpu_proj_trace.csv"
    path.write_text(RANGES.read_text().replace("NumGPUOps", "Ops?"))
    with pytest.raises(RecordingError, match="no column NumGPUOps in its header"):
        read_ranges(path)


def test_a_spreadsheets_file_is_an_error(tmp_path):
    """Semicolons and decimal commas: 612,5 must not become 6125."""
    path = tmp_path / "demo_nvtx_gpu_proj_trace.csv"
    path.write_text(RANGES.read_text().replace(",", ";"))
    with pytest.raises(RecordingError, match="spreadsheet"):
        read_ranges(path)


@pytest.mark.parametrize("wrong", ["612,5", "", "n/a", "nan", "1,23,456", "0x10"])
def test_what_is_not_a_number_is_an_error(wrong, tmp_path):
    path = tmp_path / "demo_nvtx_gpu_proj_trace.csv"
    path.write_text(RANGES.read_text().replace("16991620", f'"{wrong}"'))
    with pytest.raises(RecordingError, match="line 2"):
        read_ranges(path)


def test_a_row_that_was_cut_off_is_an_error(tmp_path):
    path = tmp_path / "demo_nvtx_gpu_proj_trace.csv"
    path.write_text(RANGES.read_text()[:-120])
    with pytest.raises(RecordingError, match=r"line 3[0-9]"):
        read_ranges(path)


def test_an_unknown_unit_is_an_error(tmp_path):
    path = tmp_path / "demo_nvtx_gpu_proj_trace.csv"
    path.write_text(RANGES.read_text().replace("(ns)", "(ticks)"))
    with pytest.raises(RecordingError, match="unknown unit, ticks"):
        read_ranges(path)


def test_kernel_names_may_hold_anything(tmp_path):
    name = 'void k<int, 4>(float *, "x")\n  [with T = float]'
    path = tmp_path / "demo_cuda_gpu_kern_sum.csv"
    with path.open("w", newline="") as out:
        csv.writer(out).writerows(
            [["Total Time (ns)", "Instances", "Name"], ["62,914,755", "1,073", name]]
        )
    assert read_report(path, KERNEL_COLUMNS) == [
        {"Name": name, "Total Time": 62914755, "Instances": 1073}
    ]


def test_only_one_colon_is_taken_off(tmp_path):
    path = range_csv(tmp_path / "x.csv", train_ranges()[:1])
    path.write_text(path.read_text().replace(":step", "::step"))
    assert read_ranges(path)[0].name == ":step"


def test_the_sample_and_the_schema_agree():
    """What is written to look like nsys's file has nsys's columns."""
    header = RANGES.read_text().split("\n")[0].split(",")
    assert list(RANGE_HEADER) == header
    assert all(any(h.startswith(column) for h in header) for column in RANGE_COLUMNS)


# --- the SQLite export ----------------------------------------------------------------------------


def test_the_gpu_as_its_driver_reports_it(tmp_path):
    l40 = (0, "NVIDIA L40", 142, 2_490_000_000, 864_096_000_000, 96 * 2**20)
    export = NsysExport(sqlite_export(tmp_path / "x.sqlite", train_ops(), gpus=(l40,)))
    assert (
        str(export.device())
        == "NVIDIA L40: 142 SMs, 2490 MHz, memory bandwidth 864 GB/s, L2 cache 96 MiB"
    )


def test_what_the_export_does_not_tell_of_the_gpu_is_left_out(tmp_path):
    silent = (0, "NVIDIA Mystery", None, 0, None, 2**20)
    export = NsysExport(sqlite_export(tmp_path / "x.sqlite", train_ops(), gpus=(silent,)))
    assert str(export.device()) == "NVIDIA Mystery: L2 cache 1 MiB"


def test_no_gpu_in_the_export(tmp_path):
    export = NsysExport(sqlite_export(tmp_path / "x.sqlite", train_ops(), gpus=()))
    assert export.device() is None


def test_operations_are_kernels_copies_and_memsets(tmp_path):
    export = NsysExport(sqlite_export(tmp_path / "x.sqlite", train_ops()))
    assert export.gpu_ops() == train_ops()


def test_a_recording_without_kernels_is_an_error(tmp_path):
    export = NsysExport(sqlite_export(tmp_path / "x.sqlite", []))
    with pytest.raises(RecordingError, match="no kernel ran"):
        export.gpu_ops()


@pytest.mark.parametrize("content", [None, b"not a database at all, but long enough to be one"])
def test_an_export_that_is_none(content, tmp_path):
    path = tmp_path / "x.sqlite"
    if content:
        path.write_bytes(content)
    with pytest.raises(RecordingError, match=r"x\.sqlite"):
        NsysExport(path).gpu_ops()


def test_counters_over_spans(tmp_path):
    """Samples of 1 ms: a span counts each by how much of it lies inside."""
    seen = [(t * MS, metric_values(10 * t, 5 * t, t, 100 - t)) for t in range(5)]
    export = NsysExport(sqlite_export(tmp_path / "x.sqlite", train_ops(), metrics={STREAM: seen}))
    counters = export.counters()
    one_sample = counters.means([(2 * MS, 3 * MS)])
    assert one_sample == pytest.approx(
        {"sm_active": 20, "tensor_active": 10, "dram_read": 2, "dram_write": 98}
    )
    # A quarter of sample 1, all of sample 2 and a half of sample 3.
    mixed = counters.means([(int(1.75 * MS), 2 * MS), (2 * MS, int(3.5 * MS))])
    assert mixed["sm_active"] == pytest.approx((0.25 * 10 + 20 + 0.5 * 30) / 1.75)


def test_a_counter_that_this_gpu_does_not_have(tmp_path):
    values = metric_values(50, 50, 50, 50)
    del values["Tensor Active [Throughput %]"]
    seen = [(t * MS, values) for t in range(5)]
    export = NsysExport(sqlite_export(tmp_path / "x.sqlite", train_ops(), metrics={STREAM: seen}))
    assert set(export.counters().means([(0, MS)])) == {"sm_active", "dram_read", "dram_write"}


def test_counters_outside_the_samples_are_unknown_not_zero(tmp_path):
    seen = [(t * MS, metric_values(50, 50, 50, 50)) for t in range(5)]
    export = NsysExport(sqlite_export(tmp_path / "x.sqlite", train_ops(), metrics={STREAM: seen}))
    assert set(export.counters().means([(9 * MS, 10 * MS)]).values()) == {None}


def test_counters_of_older_releases(tmp_path):
    """JSON in GENERIC_EVENTS, numbers sometimes as text, other events in between."""
    event = {"SM Active": "40", "Tensor Active": 30, "DRAM Read Bandwidth": 20,
             "DRAM Write Bandwidth": 10, "GR Active": 99}  # fmt: skip
    generic = {
        STREAM: [(t * MS, json.dumps(event)) for t in range(3)],
        99: [(MS, "no json"), (MS, "[1]"), (MS, '{"SM Active": 3}')],
    }
    export = NsysExport(sqlite_export(tmp_path / "x.sqlite", train_ops(), generic=generic))
    assert export.counters().means([(0, MS)]) == pytest.approx(
        {"sm_active": 40, "tensor_active": 30, "dram_read": 20, "dram_write": 10}
    )


def test_counters_of_the_gpu_that_ran_the_kernels(tmp_path):
    """nsys samples every GPU of the node, and numbers them in its own way."""
    other = (3, "NVIDIA Other", 1, 1_000_000, 1_000_000_000, 2**20)
    metrics = {
        STREAM | gpu: [(t * MS, metric_values(value, value, value, value)) for t in range(3)]
        for gpu, value in ((0, 11.0), (3, 33.0))
    }
    export = NsysExport(
        sqlite_export(
            tmp_path / "x.sqlite", train_ops(), gpus=(H200, other), cuda_to_gpu={0: 3, 1: 0},
            metrics=metrics,
        )
    )  # fmt: skip
    assert export.counters().means([(0, MS)])["sm_active"] == pytest.approx(33)
    assert export.device().name == "NVIDIA Other"


def test_no_counters_rather_than_another_gpus(tmp_path):
    metrics = {
        STREAM | gpu: [(t * MS, metric_values(1, 1, 1, 1)) for t in range(3)] for gpu in (4, 5)
    }
    export = NsysExport(sqlite_export(tmp_path / "x.sqlite", train_ops(), metrics=metrics))
    assert export.counters() is None


def test_a_recording_without_counters(tmp_path):
    assert NsysExport(sqlite_export(tmp_path / "x.sqlite", train_ops())).counters() is None
