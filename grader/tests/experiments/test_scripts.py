"""The experiments' scripts, end to end, on a virtual GPU with a tiny model."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from a1 import bench_gemm, bench_ops, micro_batches, session, stages, sweep
from shared import artifacts, provenance
from shared.gpus import COURSE_GPU

from . import dry_run
from .dry_run import run

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def own_signals():
    """`session.run` takes over SIGTERM; the next test gets it back."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def a1(tmp_path, capsys):
    """Runs a script with its results in a folder of its own; gives what it printed."""

    def script(name, *arguments, **options):
        run(name, *map(str, arguments), "--results", str(tmp_path), **options)
        return capsys.readouterr().out

    script.folder = tmp_path
    return script


def said_when_it_stopped(capsys, function, *arguments, **options) -> tuple[object, str]:
    with pytest.raises(SystemExit) as stop:
        function(*arguments, **options)
    return stop.value.code, capsys.readouterr().err


def test_bench_gemm(a1):
    printed = a1("bench_gemm", "--seconds", 0.002, "--idle-seconds", 0)
    gemm = artifacts.read(a1.folder / "gemm.csv")
    assert set(gemm["shape"]) == set(artifacts.table("gemm").rows["shape"])
    assert not artifacts.not_derived(artifacts.table("gemm"), gemm)
    assert len(artifacts.read(a1.folder / "gemm_sustained.csv")) > 10
    assert (a1.folder / "roofline.png").read_bytes().startswith(b"\x89PNG")
    assert re.search(
        r"^expert gate_proj +M= +4 +[\d.]+ ms +[\d.]+ TFLOP/s +[\d.]+ GB/s +intensity +[\d.]+$",
        printed,
        re.MULTILINE,
    )


def test_regimes(a1):
    printed = a1("regimes", "--seconds", 0.001)
    rows = artifacts.read(a1.folder / "regimes.csv")
    assert not artifacts.missing_rows(artifacts.table("regimes"), rows)
    assert rows.kernel_running_percent.isna().all()  # no counters here: blank, not 0
    assert "large GEMM, 8192^3" in printed and "n/a" in printed


def test_bench_ops(a1):
    a1("bench_ops")
    rows = artifacts.read(a1.folder / "ops.csv")
    assert set(rows.op) == set(artifacts.table("ops").rows["op"])
    assert not artifacts.not_derived(artifacts.table("ops"), rows)
    assert (a1.folder / "ops.png").exists()


@pytest.mark.parametrize("recompute", [False, True])
def test_stages(a1, recompute):
    flags = ["--recompute"] if recompute else []
    shape = ["--layers", 2, "--micro-batch-size", 2, "--seqlen", 16, "--seconds", 0]
    printed = a1("stages", *shape, *flags)
    name = "stages_rc" if recompute else "stages"
    rows = artifacts.read(a1.folder / f"{name}.csv").set_index("stage")
    assert list(rows.index) == ["embed", "layers.0", "layers.1", "head", "step"]
    step, parts = rows.loc["step"], rows.drop(index="step")
    kinds = ["forward_ms", "backward_ms", "recompute_ms"]
    assert parts[kinds].sum().to_list() == pytest.approx(step[kinds].to_list(), rel=1e-4)
    assert sum(step[[*kinds, "optimizer_ms"]]) == pytest.approx(step.step_ms, rel=1e-4)
    assert (step.recompute_ms > 0) == recompute
    assert step.tokens_per_s == pytest.approx(2 * 16 / step.step_ms * 1e3, rel=1e-4)
    for line in ("total ", "optimizer ", "step ", "peak memory ", f"wrote {a1.folder}/{name}.csv"):
        assert re.search(f"^{line}", printed, re.MULTILINE), line
    assert printed.splitlines()[-1].startswith("counters: a kernel was running ")


def test_sweep_appends_and_resumes(a1):
    arguments = ["--layers", 1, "--seqlens", 8, 16, "--seconds", 0, "--micro-batch-sizes"]
    assert "appended to" in a1("sweep", *arguments, 1)
    a1("sweep", *arguments, 1, 2, "--resume")
    rows = artifacts.read(a1.folder / "sweep.csv")
    found = list(rows[["micro_batch_size", "seqlen"]].itertuples(index=False, name=None))
    assert found == [(1, 8), (1, 16), (2, 8), (2, 16)]
    assert not artifacts.not_derived(artifacts.table("sweep"), rows)
    runs = provenance.read_sidecar(a1.folder / "sweep.csv")
    assert [r["run"] for r in runs] == list(dict.fromkeys(rows.run)) and len(runs) == 2
    for r in runs:
        assert r["gpu"] == COURSE_GPU.name and r["started"] <= r["ended"]
        assert {"a1/sweep.py", "a1/session.py", "olmoe/train.py", "a1/perfmodel.py"} <= set(
            r["code"]
        )
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in r["code"].values())


SMALL = SimpleNamespace(name="Small GPU", peak_tflops=10.0, peak_gbs=100.0, memory_gib=6e-4)


def test_what_does_not_fit_is_a_row_and_the_next_one_runs(a1):
    arguments = ["--layers", 1, "--seqlens", 256, 8, "--micro-batch-sizes", 1, 8, "--seconds", 0]
    printed = a1("sweep", *arguments, "--recompute", sheet=SMALL)
    rows = artifacts.read(a1.folder / "sweep.csv")
    assert list(rows.status) == ["ok", "ok", "out of memory", "out of memory"]
    assert rows.mfu_percent.isna().all()  # no data sheet, no MFU
    assert printed.count("out of memory") == 2


def test_after_an_out_of_memory_the_optimizer_starts_afresh(a1):
    """AdamW whose first step ran out of memory has some moments and not others."""
    with dry_run.small_world("sweep") as world:
        model = world.session.random_model(1)
        optimizer = world.module.make_optimizer(model)
        micro_batch = world.session.micro_batch(model, 1, 8)
        step, calls = optimizer.step, []

        def fails_once():
            calls.append(1)
            if len(calls) == 1:
                optimizer.state[model.lm_head.weight] = {"step": torch.tensor(0.0)}
                raise torch.OutOfMemoryError
            return step()

        optimizer.step = fails_once
        assert world.module.measure(model, optimizer, micro_batch, False, 0) is None
        assert world.module.measure(model, optimizer, micro_batch, False, 0)["step_ms"] > 0


def test_micro_batches(a1):
    shape = ["--layers", 1, "--global-batch-size", 4, "--seqlen", 16]
    printed = a1("micro_batches", *shape, "--micro-batch-sizes", 4, 2)
    rows = artifacts.read(a1.folder / "micro_batches.csv")
    assert list(rows.micro_batches) == [1, 2] * 2
    assert list(rows.recompute) == ["no"] * 2 + ["yes"] * 2
    assert not artifacts.not_derived(artifacts.table("micro_batches"), rows)
    assert rows.peak_gib[:2].is_monotonic_decreasing
    assert "global batch size 4, 16 tokens per sequence: 64 tokens per step, 1 layers" in printed
    assert (a1.folder / "micro_batches.png").exists()


def test_micro_batches_that_do_not_fit(a1):
    shape = ["--layers", 1, "--global-batch-size", 4, "--seqlen", 64]
    printed = a1("micro_batches", *shape, "--micro-batch-sizes", 4, 1, sheet=SMALL)
    rows = artifacts.read(a1.folder / "micro_batches.csv")
    assert list(rows.status) == ["out of memory", "ok"] * 2
    assert re.search(r"^ +4 +1 +no +out of memory$", printed, re.MULTILINE)


def test_micro_batches_refuses_half_a_micro_batch(a1, capsys):
    code, said = said_when_it_stopped(
        capsys, a1, "micro_batches", "--global-batch-size", 8, "--micro-batch-sizes", 3
    )
    assert code == 2 and "8 sequences are no whole micro batches of 3" in said


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A tiny pretrained model that speaks in words w0, w1, ..."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    from olmoe.load import save
    from olmoe.model import Olmoe

    folder = tmp_path_factory.mktemp("checkpoint")
    cfg = dry_run.tiny_config()
    save(Olmoe(cfg, dtype=torch.bfloat16), folder)
    words = {f"w{i}": i for i in range(cfg.vocab_size - 1)} | {"[UNK]": cfg.vocab_size - 1}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_hello(checkpoint, capsys):
    run("hello", "w1 w2 w3", "--weights", str(checkpoint), "--tokens", "4")
    loaded, text = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"loaded 0\.00B parameters in \d+ s; \d+\.\d GiB on the GPU", loaded)
    assert text.startswith("w1 w2 w3 ") and 4 <= len(text.split()) <= 7


def test_routing_of_a_text(a1, checkpoint):
    passage = a1.folder / "mine.txt"
    passage.write_text("w1 w2 w3 w4 w5 w6")
    printed = a1("routing", "--weights", checkpoint, "--text", passage)
    rows = artifacts.read(a1.folder / "routing.csv")
    assert rows.groupby("layer").tokens.sum().tolist() == [12, 12]  # 6 tokens, 2 experts each
    assert "6 tokens of mine.txt, 2 experts each" in printed


def test_routing_needs_no_checkpoint(a1):
    assert "16 random tokens, random weights" in a1("routing", "--random-weights")


def test_no_checkpoint_is_said_in_one_line(a1, capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("OLMOE_WEIGHTS", raising=False)
    said, _ = said_when_it_stopped(capsys, a1, "routing")
    assert said == (
        "routing.py: no checkpoint: say --weights FOLDER, or set OLMOE_WEIGHTS "
        "(or --random-weights)"
    )
    said, _ = said_when_it_stopped(capsys, run, "hello", "--weights", str(tmp_path))
    assert said == f"hello.py: no checkpoint in {tmp_path}: it has no config.json"


def test_no_gpu_is_said_in_one_line(tmp_path):
    """As a student runs it: from the root of the release, with no path set."""
    for name in ("olmoe", "shared"):
        (tmp_path / name).mkdir()
    for folder in ("olmoe", "student/olmoe", "shared", "student/a1"):
        target = tmp_path / folder.removeprefix("student/")
        target.mkdir(exist_ok=True)
        for file in (ROOT / folder).iterdir():
            if file.is_file():
                (target / file.name).symlink_to(file)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment |= {
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # A script's own folder is where it really lies, so copy the one that is started.
    script = tmp_path / "a1" / "stages.py"
    text = script.read_text()
    script.unlink()
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, "a1/stages.py", "--layers", "2"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "stages.py: no GPU here; in `make gpu-shell`, or with: "
        "sbatch slurm/job.sbatch python a1/stages.py --layers 2\n"
    )


def test_an_exercise_that_is_not_done_is_named(capsys):
    def stub(file: str, function: str):
        namespace = {}
        source = f"def {function}(*_):\n    raise NotImplementedError"
        exec(compile(source, f"/somewhere/{file}", "exec"), namespace)
        return namespace[function]

    for file, function, number in (
        ("olmoe/prof.py", "cuda_time", 1),
        ("olmoe/model.py", "forward", 5),
        ("olmoe/train.py", "stage_times", 7),
        ("a1/perfmodel.py", "state_bytes", 8),
    ):
        said, _ = said_when_it_stopped(capsys, session.run, stub(file, function))
        assert said == (
            f"Coding {number} first: {function} in {file} is not written yet (make test C={number})"
        )


def test_ctrl_c_keeps_what_was_measured(a1, capsys, monkeypatch):
    measure, calls = session.median_ms, []

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == 6:
            os.kill(os.getpid(), signal.SIGTERM)  # as Slurm does at the end of a job
        return measure(*arguments, **options)

    monkeypatch.setattr(session, "median_ms", interrupted)
    code, said = said_when_it_stopped(capsys, a1, "bench_ops")
    assert code == session.INTERRUPTED
    assert f"kept 5 rows in {a1.folder}/ops.csv" in said
    assert len(artifacts.read(a1.folder / "ops.csv")) == 5


@pytest.mark.parametrize("failing", ["write_bytes", "fsync"])
def test_a_full_disk_is_said_in_one_line(a1, capsys, monkeypatch, failing):
    def full(*_):
        raise OSError(28, "No space left on device", "results/a1")

    monkeypatch.setattr(*((Path, failing) if failing == "write_bytes" else (os, failing)), full)
    said, _ = said_when_it_stopped(capsys, a1, "routing", "--random-weights")
    assert said == "cannot write results/a1: the disk is full"


def test_the_sizes_of_tensors_follow_the_memory():
    assert bench_ops.sizes(140e9)[-1] == 2**32
    assert bench_ops.sizes(24e9)[-1] == 2**31
    assert bench_ops.sizes(1e9)[-1] == bench_ops.ALWAYS
    required = artifacts.table("ops").rows["tensor_bytes"]
    assert [s for s in bench_ops.SIZES if s <= bench_ops.ALWAYS] == list(required)


def test_the_grids_are_those_of_the_assignment():
    gemm = artifacts.table("gemm").rows
    from olmoe.config import OlmoeConfig

    assert list(bench_gemm.shapes(OlmoeConfig())) == list(gemm["shape"])
    assert list(gemm["m"]) == bench_gemm.MS
    assert micro_batches.grid([16, 1]) == [(False, 16), (False, 1), (True, 16), (True, 1)]
    wanted = SimpleNamespace(layers=[4, 2, 4], micro_batch_sizes=[8, 1], seqlens=[512, 64])
    assert sweep.grid(wanted)[:4] == [(2, 1, 64), (2, 8, 64), (2, 1, 512), (2, 8, 512)]
    assert len(sweep.grid(wanted)) == 8


def test_the_report_of_a_step_has_the_published_form():
    """The figures that the handout prints for two layers, 8 x 2048, recomputed, on an L40."""
    times = {
        "embed": (0.19, 1.15, 0.0),
        "layers.0": (34.19, 64.81, 32.58),
        "layers.1": (34.78, 67.36, 38.03),
        "head": (42.24, 79.33, 0.0),
    }
    of_stage = {name: dict(zip(stages.KINDS, ms, strict=True)) for name, ms in times.items()}
    step = {
        "step_ms": 417.92,
        "tokens_per_s": 8 * 2048 / 417.92 * 1e3,
        "mfu_percent": 31.9,
        "peak_gib": 15.45,
    }
    table = stages.rows({"layers": 2}, of_stage, 23.24, step)
    printed = stages.report(table, floor_ms=16.94, state_gib=7.79)
    assert re.sub(" +", " ", printed).splitlines()[-4:] == [
        "total 111.40 212.65 70.61",
        "optimizer 23.24 ms (floor 16.94 ms)",
        "step 417.9 ms = 39,204 tokens/s, MFU 31.9%",
        "peak memory 15.45 GiB (weights + gradients + Adam: 7.79 GiB)",
    ]


def test_a_missing_or_broken_sidecar(tmp_path):
    assert provenance.read_sidecar(tmp_path / "gemm.csv") == []
    (tmp_path / "gemm.csv.json").write_text('{"runs": 3}')
    with pytest.raises(artifacts.ArtifactError, match=r"gemm\.csv\.json is not a list of runs"):
        provenance.read_sidecar(tmp_path / "gemm.csv")
    provenance.write_sidecar(tmp_path / "gemm.csv", provenance.describe(["a1/x.py"]), append=True)
    assert json.loads((tmp_path / "gemm.csv.json").read_text())["artifact"] == "gemm.csv"
