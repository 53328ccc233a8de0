"""The training steps that predictions of Coding 9 are graded on: public, and a hidden pool.

A term's secret picks from the hidden pool (grader/truth.py). The two lists have no step in common,
and the hidden one goes where the public one does not: single sequences of 4096 tokens, dozens of
sequences of 128, models of 3, 5, 7 and 8 layers, steps of 256 tokens. In each list, more than a
fifth of the steps would be wrong in memory for whoever ignores recomputation. Steps are ordered by
model, and small ones come first, as they are measured.
"""

from typing import NamedTuple


class Configuration(NamedTuple):
    """A training step whose global batch is a single micro batch."""

    layers: int
    micro_batch_size: int
    seqlen: int
    recompute: bool

    @property
    def tokens(self) -> int:
        return self.micro_batch_size * self.seqlen

    def __str__(self) -> str:
        recompute = " recompute" if self.recompute else ""
        return f"{self.layers} layers {self.micro_batch_size:4d} x {self.seqlen:<5d}{recompute}"


def _steps(plain: dict[int, str], recomputed: dict[int, str]) -> tuple[Configuration, ...]:
    """Steps from {layers: "sequences x tokens ..."}, without and with recomputation."""
    steps = []
    for recompute, by_layers in ((False, plain), (True, recomputed)):
        for layers, shapes in by_layers.items():
            for shape in shapes.split():
                size, seqlen = map(int, shape.split("x"))
                steps.append(Configuration(layers, size, seqlen, recompute))
    return tuple(sorted(steps, key=lambda s: (s.layers, s.tokens, s.seqlen, s.recompute)))


PUBLIC = _steps(
    plain={
        1: "1x512 8x1024",
        2: "1x512 8x512 4x2048 8x2048",
        3: "2x1024",
        4: "2x256 4x256 1x1024 4x512 1x2048 8x512 2x2048 4x2048 16x512 8x2048",
        6: "2x512 4x1024",
    },
    recomputed={
        1: "4x1024",
        2: "4x2048 8x1024 8x2048",
        4: "1x512 8x512 4x2048 8x2048",
        6: "4x2048",
    },
)

HIDDEN = _steps(
    plain={
        1: "2x128 1x4096 16x128 64x256",
        2: "1x256 32x128 1x4096 4x4096",
        3: "4x128 1x1024 6x1024 32x512",
        4: "2x128 8x128 1x4096 64x128",
        5: "2x1024 2x4096",
        6: "8x256 1x4096 24x512",
        7: "4x256 3x2048",
        8: "1x256 4x512 1x4096 8x1024 4x4096",
    },
    recomputed={
        1: "1x2048 128x128",
        2: "4x128 2x4096 16x1024",
        3: "4x1024 16x1024 3x4096",
        4: "1x256 64x128 4x4096",
        5: "2x2048 16x512 128x128",
        6: "1x1024 2x4096 32x512",
        7: "6x1024 12x1024",
        8: "2x128 1x4096 4x2048 16x512 8x2048",
    },
)
