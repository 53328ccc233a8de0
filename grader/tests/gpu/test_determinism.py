"""The same program gives the same log, byte for byte, whatever the machine is doing."""

import os
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parents[3]

PROGRAM = """
import json, time, torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from grader.gpu import open_gpu

with open_gpu("virtual") as gpu, gpu.record(launches=True) as log:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4))).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for step in range(3):
        with torch.cuda.nvtx.range(f"step {step}"), gpu.slow(model[step], 3.0, 5.0):
            x = torch.randn(64, 64, device="cuda", requires_grad=True)
            loss = checkpoint(model, x, use_reentrant=False).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            end = torch.cuda.Event()
            end.record()
            while not end.query():
                time.sleep(0.001)
            log.append({"memory": [gpu.allocated_bytes(), gpu.peak_bytes()]})
            log.append({"set": sorted({"a", "b", "c"}), "time": time.time()})
print(json.dumps(log))
"""


def test_logs_are_identical():
    """This process against one with another hash seed and another number of threads."""
    here = []
    exec(compile(PROGRAM, "program", "exec"), {"print": here.append})
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    threads = "1" if torch.get_num_threads() > 1 else "2"
    changed = {"PYTHONHASHSEED": hash_seed, "OMP_NUM_THREADS": threads, "PYTHONPATH": str(ROOT)}
    there = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | changed,
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert there.stdout == here[0] + "\n"
