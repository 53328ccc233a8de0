"""Every GEMM of OLMoE, for 1 to 32768 tokens; then one large GEMM for six seconds, from idle.

Writes gemm.csv, roofline.png and gemm_sustained.csv.
"""

import sys
import time
from collections import deque
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder that holds olmoe/ and a1/

import torch

from a1 import plots, session
from a1.perfmodel import gemm_bytes, gemm_flops
from olmoe.config import OlmoeConfig

MS = [2**i for i in range(16)]  # tokens
LARGE = 8192  # rows and columns of the GEMM that runs for seconds
GROUP_MS = 20  # of calls of that GEMM per row: long against a clock's resolution, short against 6 s


def shapes(cfg: OlmoeConfig) -> dict[str, tuple[int, int]]:
    """Weight matrix -> (k, n).  Matrices of equal shape (up_proj is gate_proj's) are one entry."""
    return {
        "attention q_proj": (cfg.d_model, cfg.d_model),
        "router": (cfg.d_model, cfg.n_experts),
        "expert gate_proj": (cfg.d_model, cfg.d_expert),
        "expert down_proj": (cfg.d_expert, cfg.d_model),
        "lm_head": (cfg.d_model, cfg.vocab_size),
    }


def row(shape: str, m: int, k: int, n: int, ms: float) -> dict:
    """A row of gemm.csv from a measured time."""
    flops, nbytes = gemm_flops(m, k, n), gemm_bytes(m, k, n)
    rates = {"tflops": flops / ms / 1e9, "gbs": nbytes / ms / 1e6, "intensity": flops / nbytes}
    return {"shape": shape, "m": m, "k": k, "n": n, "ms": ms, **rates}


def line(r: dict) -> str:
    """That row as it is printed."""
    return (
        f"{r['shape']:<18} M={r['m']:>6}  {r['ms']:9.4f} ms  {r['tflops']:8.2f} TFLOP/s  "
        f"{r['gbs']:8.1f} GB/s  intensity {r['intensity']:7.1f}"
    )


def sweep(out: session.Results) -> None:
    """Time every shape at every M."""
    todo = [(shape, kn, m) for shape, kn in shapes(OlmoeConfig()).items() for m in MS]
    for shape, (k, n), m in session.progress(todo, "GEMMs"):
        a = torch.randn(m, k, device=session.DEVICE, dtype=torch.bfloat16)
        b = torch.randn(k, n, device=session.DEVICE, dtype=torch.bfloat16)
        ms = session.median_ms(lambda a=a, b=b: torch.matmul(a, b), warmup=5, repeats=30)
        session.say(line(out.add(**row(shape, m, k, n, ms))))


def sustained(out: session.Results, seconds: float, idle_s: float) -> None:
    """One large GEMM back to back, from a GPU that has been idle: a row per group of calls."""
    a = torch.randn(LARGE, LARGE, device=session.DEVICE, dtype=torch.bfloat16)
    b = torch.randn(LARGE, LARGE, device=session.DEVICE, dtype=torch.bfloat16)
    calls = max(1, round(GROUP_MS / session.median_ms(lambda: torch.matmul(a, b), 2, 3)))
    flops = calls * gemm_flops(LARGE, LARGE, LARGE)
    session.clock_and_power()  # the first question takes longer
    time.sleep(idle_s)

    def event() -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    first = event()
    queued, begin = deque(), first
    while True:
        for _ in range(calls):
            torch.matmul(a, b)
        queued.append(event())
        if len(queued) < 3:  # the next groups are in the queue while we wait and ask for the clock
            continue
        end = queued.popleft()
        end.synchronize()
        elapsed_s = first.elapsed_time(end) / 1e3
        tflops = flops / begin.elapsed_time(end) / 1e9
        out.add(seconds=elapsed_s, tflops=tflops, **session.clock_and_power())
        begin = end
        if elapsed_s > seconds:
            torch.cuda.synchronize()
            return


def main() -> None:
    parser = session.arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="of the sustained run")
    parser.add_argument("--idle-seconds", type=float, default=10.0, help="before it")
    args = parser.parse_args()
    session.need_gpu()
    gpu = session.sheet()
    with session.results("gemm", args) as out:
        sweep(out)
    figure = plots.roofline(out.frame(), gpu, session.title("GEMMs of OLMoE, bf16"))
    session.save_plot(figure, args.results / "roofline.png")

    session.say(
        f"one {LARGE}^3 GEMM back to back for {args.seconds:g} s, "
        f"after {args.idle_seconds:g} s of rest"
    )
    with session.results("gemm_sustained", args) as out:
        sustained(out, args.seconds, args.idle_seconds)
    rates = out.frame().tflops
    first, last = rates.iloc[:5].median(), rates.iloc[-20:].median()
    session.say(f"{first:.0f} TFLOP/s at first, {last:.0f} at the end")


if __name__ == "__main__":
    session.run(main)
