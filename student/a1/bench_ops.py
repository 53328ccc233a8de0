"""Operations with almost no arithmetic, on tensors from a tenth of a megabyte to several gigabytes.

Writes ops.csv and ops.png: the bandwidth that each achieves.
"""

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder that holds olmoe/ and a1/

import torch
import torch.nn.functional as F

from a1 import plots, session
from olmoe.config import OlmoeConfig

SIZES = [2**i for i in range(17, 33)]  # bytes of one tensor
ALWAYS = 2**30  # up to here every GPU is asked; above, those with the memory
MEMORY_SHARE = 0.7  # of what is free, for an operation's tensors

# Name -> (tensors that it must read or write, what it does).  An operation that writes something in
# between (silu, as a kernel of its own) moves more than that, and comes out slower.
Op = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]
OPS: dict[str, tuple[int, Op]] = {
    "copy": (2, lambda x, y, out: out.copy_(x)),
    "add": (3, lambda x, y, out: torch.add(x, y, out=out)),
    "silu(x) * y": (3, lambda x, y, out: torch.mul(F.silu(x), y, out=out)),
    "norm": (2, lambda x, y, out: F.rms_norm(x, x.shape[-1:])),
}
TENSORS = 4  # alive at once: x, y, out, and what an operation allocates


def sizes(free_bytes: float) -> list[int]:
    """The sizes that a GPU with so much free memory is asked for."""
    return [s for s in SIZES if s <= ALWAYS or TENSORS * s <= MEMORY_SHARE * free_bytes]


def row(op: str, tensor_bytes: int, ms: float) -> dict:
    """A row of ops.csv from a measured time."""
    moved = OPS[op][0] * tensor_bytes
    gbs = moved / ms / 1e6
    return {"op": op, "tensor_bytes": tensor_bytes, "bytes_moved": moved, "ms": ms, "gbs": gbs}


def line(r: dict) -> str:
    """That row as it is printed."""
    moved = f"{r['bytes_moved'] / 1e6:,.1f}"
    return f"{r['op']:<12} {moved:>10} MB moved  {r['ms']:9.4f} ms  {r['gbs']:8.1f} GB/s"


def measure(out: session.Results, width: int) -> None:
    free_bytes, _ = torch.cuda.mem_get_info()
    for tensor_bytes in session.progress(sizes(free_bytes), "sizes"):
        x, y, z = (
            torch.randn(
                tensor_bytes // (2 * width), width, device=session.DEVICE, dtype=torch.bfloat16
            )
            for _ in range(3)
        )
        for op, (_, do) in OPS.items():
            ms = session.median_ms(lambda do=do, t=(x, y, z): do(*t), warmup=5, repeats=30)
            session.say(line(out.add(**row(op, tensor_bytes, ms))))
        del x, y, z
        session.give_memory_back()


def main() -> None:
    args = session.arguments(__doc__).parse_args()
    session.need_gpu()
    with session.results("ops", args) as out:
        measure(out, OlmoeConfig().d_model)
    figure = plots.bandwidth(
        out.frame(), session.sheet(), session.title("Operations with almost no arithmetic, bf16")
    )
    session.save_plot(figure, args.results / "ops.png")


if __name__ == "__main__":
    session.run(main)
