"""The experiments' files: what a student's editor, spreadsheet or second run does to them."""

import errno
import multiprocessing
import os
import re

import pandas as pd
import pytest

from shared import artifacts
from shared.artifacts import ArtifactError
from shared.assignment import assignment

from .samples import sample_gemm, sample_ops, sample_sweep_row

OPS = "op,tensor_bytes,bytes_moved,ms,gbs\n"
GOOD = "copy,1048576,2097152,0.005,419.43\n"


@pytest.fixture
def ops(tmp_path):
    """Writes text as ops.csv and reads it as an artifact."""

    def read(text: str | bytes):
        path = tmp_path / "ops.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return artifacts.read(path)

    return read


def refused(read, text) -> str:
    with pytest.raises(ArtifactError) as caught:
        read(text)
    return str(caught.value)


def test_what_is_written_reads_back(tmp_path):
    for name, frame in (("gemm", sample_gemm()), ("ops", sample_ops())):
        back = artifacts.read(artifacts.write(name, frame, tmp_path / f"{name}.csv"))
        assert back.shape == frame.shape
        assert list(back.columns) == [c.name for c in artifacts.table(name).columns]
        assert (back.ms.to_numpy() / frame.ms.to_numpy() - 1).max() < 1e-5
        assert not artifacts.not_derived(artifacts.table(name), back)
        assert not artifacts.missing_rows(artifacts.table(name), back)


@pytest.mark.parametrize(
    "text",
    [
        OPS + GOOD,
        "\ufeff" + OPS + GOOD,
        (OPS + GOOD).replace("\n", "\r\n"),
        OPS + GOOD + "\n\n,,,,\n",
        OPS + GOOD + OPS,
        "note,gbs,ms,bytes_moved,tensor_bytes,op\nmine,419.43,5e-3,2097152,1048576.0,copy\n",
        OPS.replace("\n", ",\n") + GOOD.replace("\n", ",\n"),
        OPS + '"copy", 1048576 ,2097152,0.005,419.43,\n',
        OPS + GOOD.rstrip("\n"),
    ],
    ids=[
        "plain",
        "bom",
        "crlf",
        "blank",
        "header again",
        "order",
        "commas",
        "quoted",
        "no newline",
    ],
)
def test_harmless_forms_are_read(ops, text):
    frame = ops(text)
    assert frame.iloc[0].to_dict() == {
        "op": "copy",
        "tensor_bytes": 1048576,
        "bytes_moved": 2097152,
        "ms": 0.005,
        "gbs": 419.43,
    }
    assert frame.tensor_bytes.dtype == "int64" and frame.ms.dtype == "float64"


REFUSED = [
    (OPS.replace(",", ";") + GOOD.replace(",", ";").replace(".", ","), "separated by ';'"),
    ("sep=;\n" + OPS.replace(",", ";"), "separated by ';'"),
    (OPS.replace(",", "\t") + GOOD.replace(",", "\t"), "separated by tabs"),
    (OPS + 'copy,1048576,2097152,"0,005",419.43\n', "line 2, column ms: '0,005' is written as"),
    (
        OPS + 'copy,"1,048,576",2097152,0.005,419.43\n',
        "column tensor_bytes: '1,048,576' is wri",
    ),
    (OPS + "copy,1048576,2097152,0,005,419,43\n", "line 2: 7 values, but 5 columns (a decimal"),
    (OPS + "copy,1048576,2097152,1'048.5,419.43\n", "is written as a spreadsheet"),
    (
        OPS + GOOD + "copy,1048576,20971",
        "line 3: 3 values, but 5 columns (the line was cut off",
    ),
    (
        OPS + GOOD + "copy,1048576,2097152,nan,1\n",
        "line 3, column ms: 'nan' is not a measuremen",
    ),
    (OPS + "copy,1048576,2097152,0.005,-Inf\n", "column gbs: '-Inf' is not a measurement"),
    (OPS + "copy,1048576,2097152,1e999,1\n", "column ms: '1e999' is not finite"),
    (OPS + "copy,1048576,2097152,,1\n", "column ms: is empty"),
    (OPS + "copy,1048576,2097152,0,1\n", "column ms: 0 is not above 0"),
    (OPS + "copy,1048576.5,2097152,1,1\n", "column tensor_bytes: '1048576.5' is not a whole"),
    (OPS + "copy,1e300,2097152,1,1\n", "column tensor_bytes: '1e300' is not a whole"),
    (OPS + "copy,1_048_576,2097152,1,1\n", "column tensor_bytes: '1_048_576' is not a number"),
    (OPS + "copy,١٢,2097152,1,1\n", "column tensor_bytes: '١٢' is"),
    (OPS, "has a header and no rows"),
    ("", "has no header"),
    ("op,tensor_bytes,ms,gbs\ncopy,1,1,1\n", "no column bytes_moved"),
    ("op,ms,ms,tensor_bytes,bytes_moved,gbs\n", "column ms is there twice"),
    ((OPS + GOOD).encode("utf-16"), "is not UTF-8"),
    (OPS + '"' + "x" * 200_000, "not a CSV file"),
    (OPS + GOOD * 5001, "line 5002: more than 5000 rows"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)), ids=lambda case: REFUSED[case][1])
def test_what_could_be_misread_is_refused(ops, case):
    text, message = REFUSED[case]
    said = refused(ops, text)
    assert message in said
    assert said.startswith("ops.csv")


def test_a_refusal_says_how_to_make_the_file(ops, tmp_path):
    assert "python a1/bench_ops.py" in refused(ops, OPS)
    missing = refused(lambda _: artifacts.read(tmp_path / "gemm.csv"), "")
    assert missing == "gemm.csv is missing: run python a1/bench_gemm.py"


def test_a_hundred_bad_lines_are_not_a_hundred_messages(ops):
    said = refused(ops, OPS + "copy,1048576,2097152,nan,1\n" * 100)
    assert len(said.splitlines()) == artifacts.MAX_PROBLEMS + 1


def test_an_out_of_memory_row_is_kept(tmp_path):
    lost = {k: None for k in artifacts.table("sweep").rows} | sample_sweep_row(
        status=artifacts.OUT_OF_MEMORY
    )
    for column in artifacts.table("sweep").columns:
        if column.type == "float":
            lost[column.name] = None
    path = artifacts.write("sweep", [sample_sweep_row(), lost], tmp_path / "sweep.csv")
    frame = artifacts.read(path)
    assert list(frame.status) == ["ok", "out of memory"]
    assert frame.step_ms.isna().tolist() == [False, True]
    assert not artifacts.not_derived(artifacts.table("sweep"), frame)
    assert artifacts.too_little(artifacts.table("sweep"), frame)[0].startswith("1 measured rows")
    text = path.read_text().replace("out of memory", "ok")
    path.write_text(text)
    assert "line 3, column step_ms: is empty" in refused(artifacts.read, path)


def test_appending_keeps_the_order_of_the_columns_that_are_there(tmp_path):
    path = artifacts.write("sweep", [sample_sweep_row(run="first")], tmp_path / "sweep.csv")
    frame = pd.read_csv(path).assign(mine="a note")[::-1]
    frame = frame[sorted(frame.columns, reverse=True)]
    frame.to_csv(path, index=False, lineterminator="\r\n", encoding="utf-8-sig")
    artifacts.write("sweep", [sample_sweep_row(run="second", seqlen=512)], path)
    back = artifacts.read(path)
    assert list(back.run) == ["first", "second"] and list(back.seqlen) == [2048, 512]
    assert back.attrs["extra"] == ["mine"]


def test_appending_to_another_table_is_refused_and_harms_nothing(tmp_path):
    path = tmp_path / "sweep.csv"
    path.write_text(OPS + GOOD)
    assert "no column layers" in refused(
        lambda p: artifacts.write("sweep", [sample_sweep_row()], p), path
    )
    assert path.read_text() == OPS + GOOD


def _append(path, run: str) -> None:
    for seqlen in range(1, 11):
        artifacts.write("sweep", [sample_sweep_row(run=run, seqlen=seqlen)], path)


def test_two_runs_at_once_lose_no_row(tmp_path):
    path = tmp_path / "sweep.csv"
    fork = multiprocessing.get_context("fork")
    runs = [fork.Process(target=_append, args=(path, name)) for name in ("a", "b", "c")]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert artifacts.read(path).groupby("run").size().tolist() == [10, 10, 10]


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = artifacts.write("gemm", sample_gemm(), tmp_path / "gemm.csv")
    before = path.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        artifacts.write("gemm", sample_gemm(1), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["gemm.csv"]


def test_a_row_that_was_not_measured_is_not_written(tmp_path):
    for row, message in (
        (sample_sweep_row(step_ms=float("nan")), "step_ms is nan"),
        (sample_sweep_row(step_ms=None), "without step_ms"),
        (sample_sweep_row(step_mss=1.0), "no column step_mss"),
    ):
        with pytest.raises(ValueError, match=message):
            artifacts.write("sweep", [row], tmp_path / "sweep.csv")
    assert not (tmp_path / "sweep.csv").exists()


def test_derived_columns_are_recomputed():
    table, frame = artifacts.table("gemm"), sample_gemm()
    frame.index = range(2, len(frame) + 2)
    frame.loc[5, "tflops"] *= 1.02
    frame.loc[9, "ms"] *= 1000
    said = artifacts.not_derived(table, frame)
    assert [re.match(r"gemm.csv, line (\d+), column (\w+)", s).groups() for s in said] == [
        ("5", "tflops"),
        ("9", "tflops"),
        ("9", "gbs"),
    ]


def test_missing_rows_are_named():
    table, frame = artifacts.table("gemm"), sample_gemm()
    missing = artifacts.missing_rows(table, frame[~((frame["shape"] == "lm_head") & (frame.m < 4))])
    assert missing == [{"shape": "lm_head", "m": 1}, {"shape": "lm_head", "m": 2}]


NSYS = "Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"


def test_nsys_reports_in_other_forms(tmp_path):
    path = tmp_path / "train_cuda_api_sum.csv"
    preamble = (
        "Generating SQLite file train.sqlite\nProcessing [train.sqlite] with [api_sum.py]...\n\n"
    )
    row = '54.1,"62,914,755",9,1.0,1.0,1,2,0.5,"void k<int, 4>(a,\n b)"\n'
    path.write_text(preamble + NSYS.replace("Avg", "Average") + row)
    frame = artifacts.read(path)
    assert frame["Total Time (ns)"].tolist() == [62914755.0]
    assert frame["Avg (ns)"].tolist() == [1.0]
    assert frame["Name"].tolist() == ["void k<int, 4>(a,\n b)"]
    trace = tmp_path / "mine_nvtx_gpu_proj_trace.csv"
    trace.write_text(
        "Name,Projected Start (ns),Projected Duration (ns),NumGPUOps\n:forward,1,2,3\n"
    )
    assert artifacts.read(trace)["Name"].tolist() == ["forward"]
    path.write_text("SKIPPED: train.sqlite does not contain CUDA trace data.\n")
    assert "no header: nothing was recorded" in refused(artifacts.read, path)


def test_every_file_that_the_assignment_names_is_declared():
    for exercise in assignment().of_kind("experiment"):
        declared = {table.file for table in artifacts.of_experiment(exercise.number)}
        assert {f for f in exercise.files if f.endswith(".csv")} == declared


def test_the_declaration_holds_together():
    for table in artifacts.tables().values():
        for column in [*table.rows, *table.derived, *(k for k in table.at_least if k != "rows")]:
            assert table[column]
        if table.experiment and table.recording:
            assert f"nsys.sh {table.recording} " in table.command
    assert artifacts.table("demo_ranges.csv").recording == "demo"
    with pytest.raises(KeyError, match="no experiment writes"):
        artifacts.table("answers.csv")


def test_the_documentation_names_every_file_and_column():
    text = artifacts.markdown()
    for table in artifacts.tables().values():
        assert f"`{table.file.replace(table.recording or '?', 'NAME', 1)}`" in text
        for column in table.columns:
            assert f"| `{column.name}` |" in text
