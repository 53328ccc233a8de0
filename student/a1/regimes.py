"""One compute-bound, one memory-bound and one overhead-bound workload, with the GPU's counters.

Writes regimes.csv.
"""

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder that holds olmoe/ and a1/

import torch

from a1 import session

LARGE = 8192
GIB = 2**30


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=session.DEVICE, dtype=torch.bfloat16)


def large_gemm() -> Callable[[], object]:
    a, b, c = (random(LARGE, LARGE) for _ in range(3))
    return lambda: torch.matmul(a, b, out=c)


def large_add() -> Callable[[], object]:
    x, y, z = (random(GIB // 2) for _ in range(3))
    return lambda: torch.add(x, y, out=z)


def small_gemm() -> Callable[[], object]:
    a, b, c = random(64, 2048), random(2048, 1024), random(64, 1024)
    return lambda: torch.matmul(a, b, out=c)


WORKLOADS = {
    f"large GEMM, {LARGE}^3": large_gemm,
    "add two 1 GiB tensors": large_add,
    "small GEMM, 64 x 2048 x 1024": small_gemm,
}


def main() -> None:
    parser = session.arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each workload")
    args = parser.parse_args()
    session.need_gpu()
    with session.results("regimes", args, quiet=True) as out:
        for workload, make in session.progress(WORKLOADS.items(), "workloads"):
            fn = make()
            ms = session.median_ms(fn, warmup=10, repeats=50)
            seen = session.counters(fn, ms, args.seconds)
            out.add(workload=workload, ms=ms, **session.counter_cells(seen))
            session.say(f"{workload:<29} {ms:8.4f} ms   {seen}")
            del fn
            session.give_memory_back()


if __name__ == "__main__":
    session.run(main)
