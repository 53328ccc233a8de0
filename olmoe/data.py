"""Micro batches. All sequences of a micro batch are concatenated: nothing has a batch dimension,
and nothing is padded.

T is the number of tokens in the micro batch, over all of its n sequences. Sequence i is the rows
`cu_seqlens[i]` to `cu_seqlens[i + 1]` of every [T, ...] tensor.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from olmoe.config import OlmoeConfig

IGNORE = -100  # the target of a token that has none; cross_entropy's default ignore_index


@dataclass(frozen=True, eq=False)
class Seqs:
    """Where each sequence of a micro batch starts and ends.

    `max_seqlen` and `lengths` are Python numbers, so that using them never waits for the GPU.
    """

    cu_seqlens: Tensor  # int32 [n + 1]: 0, then the end of each sequence
    max_seqlen: int
    lengths: tuple[int, ...]  # n lengths; a length of 0 is allowed and has no rows

    def __post_init__(self):
        if self.cu_seqlens.dtype != torch.int32:
            raise TypeError(
                f"cu_seqlens must be int32, which attention kernels read, not"
                f" {self.cu_seqlens.dtype}: build it with Seqs.from_lengths"
            )
        if self.cu_seqlens.shape != (len(self.lengths) + 1,):
            raise ValueError(
                f"cu_seqlens has shape {tuple(self.cu_seqlens.shape)}, but {len(self.lengths)}"
                f" sequences need {len(self.lengths) + 1} boundaries"
            )

    @classmethod
    def from_lengths(cls, lengths: Sequence[int], device="cpu") -> "Seqs":
        lengths = tuple(int(n) for n in lengths)
        if any(n < 0 for n in lengths) or sum(lengths) == 0:
            raise ValueError(f"a micro batch needs at least one token: lengths are {lengths}")
        ends = [0, *accumulate(lengths)]
        return cls(torch.tensor(ends, dtype=torch.int32, device=device), max(lengths), lengths)

    @property
    def n_tokens(self) -> int:
        return sum(self.lengths)

    @cached_property
    def positions(self) -> Tensor:
        """Each token's place in its own sequence, from 0: int32 [T]."""
        starts = torch.repeat_interleave(
            self.cu_seqlens[:-1],
            self.cu_seqlens.diff(),
            output_size=self.n_tokens,  # without it, repeat_interleave waits for the GPU
        )
        return torch.arange(self.n_tokens, dtype=torch.int32, device=starts.device) - starts

    def to(self, device) -> "Seqs":
        return replace(self, cu_seqlens=self.cu_seqlens.to(device))


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """The sequences that go through the model in one forward and backward pass."""

    tokens: Tensor  # int64 [T]
    targets: Tensor  # int64 [T]: the token that follows, or IGNORE
    seqs: Seqs
    n_targets: int  # how many targets are not IGNORE: the trainable tokens

    def to(self, device) -> "MicroBatch":
        return replace(
            self,
            tokens=self.tokens.to(device),
            targets=self.targets.to(device),
            seqs=self.seqs.to(device),
        )


def pack(sequences: Sequence[Sequence[int] | Tensor], device="cpu") -> MicroBatch:
    """Concatenates sequences of token ids, of any lengths, into one micro batch.

    Each sequence is a list or a 1-D integer tensor of n + 1 ids. It becomes n tokens: every id but
    the last is a token, and the id after it is its target.

    Raises ValueError or TypeError, and names the sequence, if one has fewer than two ids or holds
    anything but non-negative integers.
    """
    if len(sequences) == 0:
        raise ValueError("there is nothing to pack: the list of sequences is empty")
    ids = [_ids(i, sequence) for i, sequence in enumerate(sequences)]
    seqs = Seqs.from_lengths([len(x) - 1 for x in ids])
    return MicroBatch(
        tokens=torch.cat([x[:-1] for x in ids]),
        targets=torch.cat([x[1:] for x in ids]),
        seqs=seqs,
        n_targets=seqs.n_tokens,
    ).to(device)


def random_micro_batch(
    cfg: OlmoeConfig, micro_batch_size: int, seqlen: int, device="cpu", seed: int = 0
) -> MicroBatch:
    """`micro_batch_size` sequences of `seqlen` random tokens each: the same on every device."""
    if micro_batch_size < 1 or seqlen < 1:
        raise ValueError(
            f"a micro batch of {micro_batch_size} sequences of {seqlen} tokens has no tokens"
        )
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(cfg.vocab_size, (micro_batch_size, seqlen + 1), generator=generator)
    return pack(list(ids), device)


def _ids(index: int, sequence: Sequence[int] | Tensor) -> Tensor:
    """One sequence as int64 ids on the CPU, checked."""
    try:
        ids = torch.as_tensor(sequence)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"sequence {index} is not a list of token ids: {error}") from error
    if ids.ndim != 1:
        raise ValueError(
            f"sequence {index} has shape {tuple(ids.shape)}: it must be a flat list of token ids"
        )
    if len(ids) < 2:
        raise ValueError(
            f"sequence {index} has {len(ids)} token ids: it needs at least 2, because the last id"
            " is only a target"
        )
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise TypeError(f"sequence {index} has dtype {ids.dtype}: token ids are integers")
    ids = ids.to("cpu", torch.int64)
    if ids.min() < 0:
        raise ValueError(f"sequence {index} holds the token id {ids.min()}: ids are not negative")
    return ids
