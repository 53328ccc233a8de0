"""The summary: folding, steps, the (backward) row, counters, the table; comparing recordings."""

import json
import random
import subprocess
import sys

import numpy as np
import pytest

from a1 import ranges
from a1.ranges import BACKWARD, backward_spans, fold, merge, subtract, summarize
from a1.recording import (
    COUNTERS,
    CounterSamples,
    Device,
    ProjectedRange,
    Recording,
    RecordingError,
)
from shared import artifacts, provenance

from .sample import (
    BACKWARD_MS,
    ENV,
    MS,
    STREAM,
    metric_values,
    range_csv,
    sqlite_export,
    train_ops,
    train_ranges,
)


def recording(steps=1, **changed):
    facts = {"recorder": "nsys", "ranges": train_ranges(steps), "gpu_ops": train_ops(steps)}
    return Recording(**facts | changed)


def rows_of(summary):
    return {row.name: row for row in summary}


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("layers.3", "layers.*"),
        ("layers.12.attn", "layers.*.attn"),
        ("recompute.layers.3", "recompute.layers.*"),
        ("recompute.layers.10.moe_norm", "recompute.layers.*.moe_norm"),
        ("stages.0.layers.1", "stages.*.layers.*"),
        ("experts", "experts"),
        ("layers.3x", "layers.3x"),
        ("CCCL:cub::DeviceRadixSort", "CCCL:cub::DeviceRadixSort"),
        ("v1.5 of 2", "v1.5 of 2"),
    ],
)
def test_fold(name, folded):
    assert fold(name) == folded


# --- the rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 3])
def test_rows_are_per_step(steps):
    rows = rows_of(summarize(recording(steps)))
    assert rows["layers.*"].gpu_ms == pytest.approx(4 + 3)
    assert rows["layers.*"].instances == pytest.approx(2)
    assert rows["layers.*"].gpu_ops == pytest.approx(4 + 3)
    assert rows["recompute.layers.*"].gpu_ms == pytest.approx(4 + 5)
    assert rows["step"].gpu_ms == pytest.approx(40)
    assert rows["step"].instances == 1


def test_longest_first_and_outer_before_inner_of_the_same_length():
    together = [ProjectedRange(name, 0, 5 * MS, 3) for name in ("step", "forward", "embed")]
    names = [row.name for row in summarize(recording(ranges=together, gpu_ops=[(0, 5 * MS)]))]
    assert names == ["step", "forward", "embed"]
    times = [row.gpu_ms for row in summarize(recording())]
    assert times == sorted(times, reverse=True)


def test_a_recording_of_something_else_is_an_error():
    foreign = [r for r in train_ranges() if r.name != "step"]
    with pytest.raises(RecordingError, match="no range is called step"):
        summarize(recording(ranges=foreign))


# --- (backward) -----------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2])
def test_backward_is_what_is_left_of_the_step(steps):
    row = rows_of(summarize(recording(steps)))[BACKWARD]
    assert row.gpu_ms == pytest.approx(BACKWARD_MS)
    assert row.instances == 1
    assert row.gpu_ops == pytest.approx(BACKWARD_MS)  # one operation starts in every ms


def test_backward_begins_where_forward_ends():
    spans = backward_spans(train_ranges())
    assert spans == [(10 * MS, 14 * MS), (18 * MS, 24 * MS), (29 * MS, 34 * MS)]


def test_backward_without_recomputation():
    plain = [r for r in train_ranges(2) if not r.name.startswith("recompute.")]
    row = rows_of(summarize(recording(2, ranges=plain)))[BACKWARD]
    assert row.gpu_ms == pytest.approx(24)


def test_ranges_in_the_order_of_another_tool_give_the_same_rows():
    shuffled = train_ranges(2)
    random.Random(5).shuffle(shuffled)
    assert backward_spans(shuffled) == backward_spans(train_ranges(2))
    assert rows_of(summarize(recording(2, ranges=shuffled))) == rows_of(summarize(recording(2)))


def test_a_forward_pass_has_no_backward_row():
    forward = [r for r in train_ranges() if r.name in ("step", "forward", "layers.0")]
    assert BACKWARD not in rows_of(summarize(recording(ranges=forward)))


def test_accumulated_micro_batches_have_several_forwards():
    made = [ProjectedRange("step", 0, 40 * MS, 1), ProjectedRange("optimizer", 36 * MS, 40 * MS, 1)]
    made += [ProjectedRange("forward", t * MS, (t + 5) * MS, 1) for t in (0, 18)]
    assert backward_spans(made) == [(5 * MS, 18 * MS), (23 * MS, 36 * MS)]


def test_spans():
    assert merge([(5, 6), (0, 2), (1, 4), (4, 5)]) == [(0, 6)]
    assert subtract((0, 10), [(-5, 1), (3, 4), (9, 20)]) == [(1, 3), (4, 9)]
    assert subtract((0, 10), [(0, 10)]) == []
    assert subtract((0, 10), [(20, 30)]) == [(0, 10)]


# --- counters -------------------------------------------------------------------------------------


def counters_of_train():
    """1 ms samples: SMs 100% in forward, 60% in backward, 80% while recomputing, 20% after."""
    at = np.arange(41) * MS
    sm = np.full(40, 60.0)
    sm[:10], sm[14:18], sm[24:29], sm[34:] = 100, 80, 80, 20
    return CounterSamples(at, {c: sm * (1 if c == "sm_active" else 0.5) for c in COUNTERS})


def test_counters_of_every_row():
    rows = rows_of(summarize(recording(counters=counters_of_train())))
    assert rows["forward"].counters["sm_active"] == pytest.approx(100)
    assert rows["recompute.layers.*"].counters["sm_active"] == pytest.approx(80)
    assert rows["optimizer"].counters["sm_active"] == pytest.approx(20)
    assert rows[BACKWARD].counters["sm_active"] == pytest.approx(60)
    assert rows[BACKWARD].counters["dram_write"] == pytest.approx(30)


# --- the table ------------------------------------------------------------------------------------


def test_the_table_without_counters():
    lines = ranges.table(summarize(recording(2)), with_counters=False).split("\n")
    assert lines[0].split() == ["range", "GPU", "ms/step", "instances", "GPU", "ops"]
    assert lines[1].split() == ["step", "40.00", "1", "16.0"]
    assert len({len(line) for line in lines}) == 1


def test_the_table_with_counters():
    lines = ranges.table(summarize(recording(counters=counters_of_train())), True).split("\n")
    assert lines[0].endswith("sm active  tensor active      dram read     dram write")
    forward = next(line for line in lines if line.startswith("forward"))
    assert forward.split() == ["forward", "10.00", "1", "10.0", "100.0%", "50.0%", "50.0%", "50.0%"]
    assert len({len(line) for line in lines}) == 1


def test_an_unknown_counter_is_blank():
    row = ranges.Row("norm", 1.0, 1, 4, dict.fromkeys(COUNTERS))
    assert ranges.table([row], with_counters=True).split("\n")[1].split() == [
        "norm",
        "1.00",
        "1",
        "4.0",
    ]


# --- from files to files --------------------------------------------------------------------------


@pytest.fixture
def folders(tmp_path):
    """results/a1 and reports/a1 with a recording called `train`, under a path with a space."""
    results, reports = tmp_path / "my course" / "results", tmp_path / "my course" / "reports"
    for folder in (results, reports):
        folder.mkdir(parents=True)
    range_csv(results / "train_nvtx_gpu_proj_trace.csv", train_ranges(2))
    samples = [(t * MS, metric_values(60, 50, 40, 30)) for t in range(100)]
    sqlite_export(reports / "train.sqlite", train_ops(2), metrics={STREAM: samples})
    return results, reports


def test_a_recording_from_its_files(folders, capsys):
    results, reports = folders
    ranges.summarize_recording("train", results, reports)
    printed = capsys.readouterr().out
    assert printed.startswith("NVIDIA H200: 132 SMs, 1980 MHz, memory bandwidth 4814 GB/s")
    assert "60.0%" in printed
    assert "no GPU metrics" not in printed
    frame = artifacts.read(results / "train_ranges.csv").set_index("range")
    assert frame.loc["(backward)", "gpu_ms_per_step"] == pytest.approx(BACKWARD_MS)
    assert frame.loc["(backward)", "gpu_ops"] == pytest.approx(BACKWARD_MS)
    assert frame.loc["layers.*", "instances"] == pytest.approx(2)
    assert frame.loc["optimizer", "dram_write"] == pytest.approx(30)


def test_without_gpu_metrics_the_table_says_so(folders, capsys):
    results, reports = folders
    (reports / "train.sqlite").unlink()
    sqlite_export(reports / "train.sqlite", train_ops(2))
    ranges.summarize_recording("train", results, reports)
    assert "(no GPU metrics in this recording)" in capsys.readouterr().out
    assert artifacts.read(results / "train_ranges.csv")["sm_active"].isna().all()


def test_the_sidecars_are_of_the_run_not_of_the_summary(folders):
    results, reports = folders
    run = {"run": "20270301T120000Z-ab12", "started": "2027-03-01T12:00:00Z", "gpu": "NVIDIA H200"}
    (reports / "train.run.json").write_text(json.dumps(run))
    ranges.summarize_recording("train", results, reports)
    first = provenance.read_sidecar(results / "train_ranges.csv")
    assert first[0]["run"] == run["run"]
    assert (
        provenance.read_sidecar(results / "train_nvtx_gpu_proj_trace.csv")[0]["gpu"] == run["gpu"]
    )
    side = provenance.sidecar_path(results / "train_ranges.csv")
    kept = side.read_text().replace(first[0]["ended"], "2027-03-01T12:01:00Z")
    side.write_text(kept)
    ranges.summarize_recording("train", results, reports)
    assert side.read_text() == kept


def test_what_cannot_be_summarized_is_said_in_one_line(folders, tmp_path):
    def says(*arguments):
        with pytest.raises(SystemExit) as stopped:
            ranges.main(list(arguments))
        message = str(stopped.value)
        assert "\n" not in message
        return message

    results, reports = folders
    here = ("--results", str(results), "--reports", str(reports))
    assert "record it with a1/nsys.sh fwd" in says("fwd", *here)
    (results / "train_nvtx_gpu_proj_trace.csv").write_text("")
    assert "no NVTX range launched anything" in says("train", *here)
    (reports / "train.sqlite").unlink()
    sqlite_export(reports / "train.sqlite", [])
    assert "no kernel ran" in says("train", *here)
    (reports / "train.sqlite").unlink()
    assert "train.sqlite is missing" in says("train", *here)


def test_a_table_and_an_export_of_different_recordings(folders):
    """Their clocks differ, so the (backward) row and the counters would be of other moments."""
    results, reports = folders
    (reports / "train.sqlite").unlink()
    later = [(start + 123_456, end + 123_456) for start, end in train_ops(2)]
    sqlite_export(reports / "train.sqlite", later)
    with pytest.raises(RecordingError, match="not of the same run"):
        ranges.load("train", results, reports)


def test_reading_an_nsys_recording_needs_no_torch():
    """The summary must not wait for torch, nor fail without it."""
    code = "import sys, a1.ranges; sys.exit('torch' in sys.modules or 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, env=ENV).returncode == 0


# --- two recordings -------------------------------------------------------------------------------


def test_two_recordings_side_by_side(tmp_path):
    rows = summarize(recording(2))
    ranges.write_csv("a", rows, tmp_path / "a_ranges.csv")
    other = [
        ranges.Row(r.name, r.gpu_ms * (1.02 if r.name == "step" else 1.0), r.instances, r.gpu_ops
                   + (r.name == "forward"))
        for r in rows if r.name != "layers.*"
    ]  # fmt: skip
    other.append(ranges.Row("CCCL:cub::DeviceScan", 0.1, 1, 2))
    ranges.write_csv("b", other, tmp_path / "b_ranges.csv")
    said = ranges.compare(tmp_path / "a_ranges.csv", tmp_path / "b_ranges.csv")
    lines = said.split("\n")
    step = next(line for line in lines if line.startswith("step"))
    assert step.split() == ["step", "16.0", "16.0", "40.000", "40.800", "+2.0%"]
    forward = next(line for line in lines if line.startswith("forward"))
    assert forward.split()[:4] == ["forward", "10.0", "11.0", "!"]
    assert "only in a: layers.*" in lines
    assert "only in b: CCCL:cub::DeviceScan" in lines
    assert f"operation counts: equal in {len(rows) - 2} of {len(rows) - 1} ranges" in lines
    assert lines[-1].endswith("at most 2.0% apart (step)")


def test_comparing_with_a_recording_that_is_missing(tmp_path):
    ranges.write_csv("a", summarize(recording()), tmp_path / "a_ranges.csv")
    with pytest.raises(SystemExit, match=r"b_ranges\.csv is missing"):
        ranges.main(["--compare", "a", "b", "--results", str(tmp_path)])


def test_the_device_of_a_recording_is_optional():
    assert str(Device("NVIDIA H200")) == "NVIDIA H200"
