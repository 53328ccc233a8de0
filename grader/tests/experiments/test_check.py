"""`make check`: every line, and the hint under each one that fails."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from a1 import check
from shared.assignment import assignment


@pytest.fixture
def node(monkeypatch, tmp_path):
    """A GPU node of the cluster on which everything is in place; gives monkeypatch."""
    weights = tmp_path / "weights"
    weights.mkdir()
    for name in ("config.json", "tokenizer.json", "a.safetensors"):
        (weights / name).write_bytes(bytes(1000))
    index = {"weight_map": {"x": "a.safetensors"}}
    (weights / "model.safetensors.index.json").write_text(json.dumps(index))
    nsys = tmp_path / "nsys"
    nsys.write_text("#!/bin/sh\necho; echo 'NVIDIA Nsight Systems version 2026.2.1'\n")
    nsys.chmod(0o755)
    for name, value in {
        "SLURM_JOB_ID": "1",
        "OLMOE_WEIGHTS": str(weights),
        "COURSE_DIR": str(tmp_path),
        "NSYS": str(nsys),
    }.items():
        monkeypatch.setenv(name, value)
    gpu = SimpleNamespace(name=assignment().gpu, total_memory=139.8 * 2**30)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: gpu)
    return monkeypatch


def failures(capsys) -> str:
    with pytest.raises(SystemExit) as stop:
        check.main()
    assert stop.value.code.endswith("FAIL.")
    out = capsys.readouterr().out
    lines = out.splitlines()
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        assert not line.startswith("[FAIL]") or after.startswith("     "), f"no hint under {line}"
    return out


def test_all_good(node, capsys):
    check.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "COS568 setup check" and lines[-1] == "All good."
    assert all(line.startswith("[ok] ") for line in lines[1:-1])
    assert "[ok] NVIDIA Nsight Systems version 2026.2.1" in lines
    assert any(line.startswith(f"[ok] GPU: {assignment().gpu}, 139.8 GiB") for line in lines)


def test_each_thing_that_can_be_missing(node, capsys, tmp_path):
    def no_package(name):
        raise check.metadata.PackageNotFoundError(name)

    with node.context() as patch:
        patch.delenv("SLURM_JOB_ID")
        patch.setattr(check.shutil, "which", lambda name: f"/usr/bin/{name}")
        assert "[FAIL] not inside a Slurm job" in failures(capsys)
    with node.context() as patch:
        patch.setattr(sys, "version_info", (3, 9, 0))
        assert "[FAIL] Python" in failures(capsys)
    with node.context() as patch:
        patch.setattr(check.metadata, "version", no_package)
        assert "[FAIL] no numpy, pandas" in failures(capsys)
    with node.context() as patch:
        patch.setattr(torch, "__version__", "2.4.1+cu121")
        said = failures(capsys)
        assert "[FAIL] PyTorch 2.4.1" in said and "CUDA is available" not in said
    with node.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        said = failures(capsys)
        assert "[FAIL] CUDA is not available" in said and "GPU:" not in said
    with node.context() as patch:
        patch.delenv("OLMOE_WEIGHTS")
        assert "[FAIL] no OLMoE checkpoint" in failures(capsys)
    with node.context() as patch:
        patch.setenv("COURSE_DIR", str(tmp_path / "nobody"))
        assert "[FAIL] your course directory" in failures(capsys)
    Path(tmp_path, "weights", "a.safetensors").unlink()
    assert "cannot read a.safetensors" in failures(capsys)


def test_what_the_assignment_can_do_without_is_no_failure(node, capsys):
    node.setenv("NSYS", "no-such-nsys")
    node.delenv("COURSE_DIR")
    node.delenv("SLURM_JOB_ID")
    check.main()
    out = capsys.readouterr().out
    assert out.count("[--]") == 3 and "--recorder torch" in out and "All good." in out


def test_an_nsys_that_does_not_start(node, capsys, tmp_path):
    (tmp_path / "nsys").write_text("#!/bin/sh\necho libdw.so.1: cannot open >&2; exit 127\n")
    assert "[FAIL] nsys does not start: libdw.so.1: cannot open" in failures(capsys)
