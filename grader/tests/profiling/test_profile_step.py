"""The script that is recorded, with a tiny model on the CPU where its GPU would be."""

import gzip
import json
import sys
from pathlib import Path

import pytest
import torch

from a1 import profile_step, session, torch_recorder
from olmoe.config import OlmoeConfig
from olmoe.model import Olmoe
from shared import artifacts, provenance

from .sample import torch_trace

TINY = OlmoeConfig(
    n_layers=2, d_model=32, n_heads=2, d_expert=16, n_experts=4, experts_per_token=2, vocab_size=64
)


@pytest.fixture
def log(monkeypatch):
    """Everything that a profiler would see, in order, on a machine whose GPU is pretended."""
    seen = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            seen.append("event")

        def elapsed_time(self, end):
            return 24.0

    def note(word):
        return lambda *args, **kwargs: seen.append(word)

    cuda = torch.cuda
    monkeypatch.setattr(cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "Event", Event)
    monkeypatch.setattr(cuda, "synchronize", note("synchronize"))
    monkeypatch.setattr(cuda, "reset_peak_memory_stats", note("reset peak"))
    monkeypatch.setattr(cuda, "max_memory_allocated", lambda: 3 * 2**30)
    monkeypatch.setattr(cuda.profiler, "start", note("start"))
    monkeypatch.setattr(cuda.profiler, "stop", note("stop"))
    monkeypatch.setattr(cuda.nvtx, "range_push", lambda msg: seen.append(f"push {msg}"))
    monkeypatch.setattr(cuda.nvtx, "range_pop", note("pop"))
    monkeypatch.setattr(
        cuda.memory, "_record_memory_history",
        lambda enabled="all", **_: seen.append(f"history {enabled}"),
    )  # fmt: skip
    monkeypatch.setattr(
        cuda.memory, "_dump_snapshot",
        lambda path: seen.append("dump") or Path(path).write_bytes(b"a pickle"),
    )  # fmt: skip
    monkeypatch.setattr(
        session, "random_model",
        lambda layers, moe_impl: Olmoe(TINY.with_layers(layers or 2), moe_impl),
    )  # fmt: skip
    monkeypatch.setattr(
        session, "micro_batch",
        lambda model, size, seqlen: session.random_micro_batch(model.cfg, size, seqlen),
    )  # fmt: skip
    return seen


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["a1/profile_step.py", "--seqlen", "8", *arguments])
    profile_step.main()


def test_only_the_steps_are_recorded(log, monkeypatch, capsys):
    run(monkeypatch, "--random-weights", "--steps", "3")
    start, stop = log.index("start"), log.index("stop")
    assert log[:start].count("push step") == profile_step.WARM_UP + 3
    assert log[start:stop].count("push step") == 3
    assert log[start:stop].count("push layers.1.moe") == 3
    assert log[stop - 1] == "synchronize"  # or the last kernels would be missing
    assert "push step" not in log[stop:]
    assert log.count("pop") == sum(entry.startswith("push") for entry in log)
    assert capsys.readouterr().out == (
        "one step: 8.0 ms before the recording started, 8.0 ms while recording\n"
        "peak memory allocated: 3.00 GiB\n"
    )


def test_a_forward_pass_is_a_range_in_a_step_and_keeps_no_graph(log, monkeypatch):
    run(monkeypatch, "--random-weights")
    recorded = log[log.index("start") : log.index("stop")]
    pushed = [entry for entry in recorded if entry.startswith("push")]
    assert pushed[:3] == ["push step", "push forward", "push embed"]
    assert not any("backward" in entry or "recompute" in entry for entry in recorded)


def test_a_training_step_with_recomputation(log, monkeypatch):
    run(monkeypatch, "--mode", "train", "--recompute", "--steps", "1")
    recorded = log[log.index("start") : log.index("stop")]
    pushed = [entry.removeprefix("push ") for entry in recorded if entry.startswith("push")]
    phases = [name for name in pushed if name in ("forward", "backward", "optimizer")]
    assert phases == ["forward", "backward", "optimizer"]
    again = [name for name in pushed if name.startswith("recompute.layers.") and name[-1].isdigit()]
    assert again == ["recompute.layers.1", "recompute.layers.0"]


def test_nothing_waits_for_the_gpu_between_two_steps(log, monkeypatch):
    """A wait would put idle time between steps, which a plain training loop does not have."""
    run(monkeypatch, "--mode", "train", "--steps", "4")
    recorded = log[log.index("start") : log.index("stop")]
    assert recorded.count("synchronize") == 1


def test_a_memory_snapshot_is_of_one_more_step(log, monkeypatch, tmp_path, capsys):
    folder = tmp_path / "new folder"
    run(monkeypatch, "--mode", "train", "--memory-snapshot", "train", "--reports", str(folder))
    after = log[log.index("stop") + 1 :]
    assert [e for e in after if "history" in e or e == "dump"] == [
        "history all", "dump", "history None"
    ]  # fmt: skip
    assert after[: after.index("dump")].count("push optimizer") == 1
    assert (folder / "train.pickle").is_file()
    assert f"wrote {folder / 'train.pickle'}" in capsys.readouterr().out


def test_the_run_is_noted_for_the_sidecars(log, monkeypatch, tmp_path):
    monkeypatch.setenv("NSYS_VERSION", "NVIDIA Nsight Systems version 2025.3.1")
    run(monkeypatch, "--random-weights", "--run-note", str(tmp_path / "note.json"))
    note = json.loads((tmp_path / "note.json").read_text())
    assert note["recorder"] == "NVIDIA Nsight Systems version 2025.3.1"
    assert note["command"][1:] == sys.argv[1:]
    assert note["step_ms_before"] == 12.0
    assert {"a1/nsys.sh", "a1/ranges.py", "olmoe/prof.py"} <= set(note["code"])


def test_nothing_is_noted_unless_asked(log, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    run(monkeypatch, "--random-weights")
    assert not list(tmp_path.iterdir())


def test_the_recording_stops_when_a_step_fails(log, monkeypatch):
    def out_of_memory():
        log.append("step")
        raise torch.OutOfMemoryError

    with pytest.raises(torch.OutOfMemoryError):
        profile_step.record_for_nsys(out_of_memory, 1)
    assert log[-1] == "stop"


def test_the_other_recorder(log, monkeypatch, tmp_path, capsys):
    """From the profiler's trace, here a made one, to the same files that nsys.sh leaves."""

    def record(run_steps, warm_up, path):
        warm_up()
        log.append("recording")
        run_steps()
        path.parent.mkdir(parents=True)
        with gzip.open(path, "wt") as out:
            json.dump(torch_trace(), out)

    monkeypatch.setattr(torch_recorder, "record", record)
    results, reports = tmp_path / "results", tmp_path / "reports"
    run(monkeypatch, "--mode", "train", "--recompute", "--recorder", "torch", "--name", "train_rc",
        "--results", str(results), "--reports", str(reports))  # fmt: skip
    assert "start" not in log
    assert log[log.index("recording") :].count("push step") == 2
    for kind in ("ranges", "nvtx_gpu_proj_trace", "cuda_gpu_kern_sum", "cuda_api_sum"):
        path = results / f"train_rc_{kind}.csv"
        assert not artifacts.read(path).empty
        (noted,) = provenance.read_sidecar(path)
        assert noted["recorder"] == f"torch.profiler {torch.__version__}"
        assert noted["step_ms_recording"] == 12.0
    printed = capsys.readouterr().out
    assert printed.startswith("one step: 12.0 ms before")
    assert f"wrote {results}/train_rc_ranges.csv" in printed
    assert str(reports / "train_rc.trace.json.gz") in printed


def test_a_recording_without_kernels_by_the_other_recorder(log, monkeypatch, tmp_path):
    """What a GPU whose activity the profiler may not see leaves: no table of zeros."""

    def record(run_steps, warm_up, path):
        run_steps()
        path.parent.mkdir(parents=True)
        with gzip.open(path, "wt") as out:
            json.dump({"traceEvents": []}, out)

    monkeypatch.setattr(torch_recorder, "record", record)
    with pytest.raises(session.Stop, match="no kernel ran"):
        run(
            monkeypatch, "--random-weights", "--recorder", "torch", "--name", "demo",
            "--results", str(tmp_path / "results"), "--reports", str(tmp_path / "reports"),
        )  # fmt: skip
    assert not (tmp_path / "results").exists()


# --- what cannot be done is said in one line ------------------------------------------------------


def test_before_coding_exercise_4_nothing_is_recorded(log, monkeypatch):
    def annotate(model):
        raise NotImplementedError

    monkeypatch.setattr(profile_step, "annotate", annotate)
    with pytest.raises(NotImplementedError):
        run(monkeypatch, "--random-weights")
    assert "start" not in log


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--recompute"], "--recompute needs --mode train"),
        (["--recorder", "torch"], "--recorder torch needs --name"),
        (["--steps", "0"], "0 is not above 0"),
        (["--name", "../x"], "cannot be a file's name"),
        (["--memory-snapshot", ".x"], "cannot be a file's name"),
        (["--moe-impl", "fast"], "invalid choice"),
    ],
)
def test_arguments_that_make_no_sense(arguments, says, capsys):
    with pytest.raises(SystemExit) as stopped:
        profile_step.parse(arguments)
    assert stopped.value.code == 2
    assert says in capsys.readouterr().err


def test_more_layers_than_the_checkpoint_has(log, monkeypatch):
    with pytest.raises(session.Stop, match="has 16 layers"):
        run(monkeypatch, "--layers", "17")


def test_no_checkpoint(log, monkeypatch, tmp_path):
    monkeypatch.delenv("OLMOE_WEIGHTS", raising=False)
    with pytest.raises(session.Stop, match="--weights FOLDER, or set OLMOE_WEIGHTS"):
        run(monkeypatch)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(session.Stop, match=r"config\.json lacks"):
        run(monkeypatch, "--weights", str(tmp_path))


def test_no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(session.Stop, match="no GPU here"):
        run(monkeypatch)
