"""Which tier a run uses, found out without starting CUDA in this process (it forks)."""

from __future__ import annotations

import subprocess
import sys


def choose_tier(wanted: str) -> str:
    """ "virtual" or "cuda"; "auto" is cuda where torch can use a GPU."""
    if wanted != "auto":
        return wanted
    probe = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 1)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, check=False)
    return "cuda" if done.returncode == 0 else "virtual"
