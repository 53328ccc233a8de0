"""Micro batches: what students' every experiment is built from."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from olmoe.data import Seqs, pack, random_micro_batch

from .samples import examples, sample_config

sequence = st.lists(st.integers(0, 50303), min_size=2, max_size=12)


def test_sequences_are_concatenated():
    micro_batch = pack([[10, 11, 12, 13], [20, 21, 22, 23, 24, 25], [30, 31, 32]])
    assert micro_batch.tokens.tolist() == [10, 11, 12, 20, 21, 22, 23, 24, 30, 31]
    assert micro_batch.targets.tolist() == [11, 12, 13, 21, 22, 23, 24, 25, 31, 32]
    assert micro_batch.tokens.dtype == micro_batch.targets.dtype == torch.int64
    assert micro_batch.n_targets == 10
    assert micro_batch.seqs.cu_seqlens.tolist() == [0, 3, 8, 10]
    assert micro_batch.seqs.cu_seqlens.dtype == torch.int32
    assert micro_batch.seqs.max_seqlen == 5
    assert micro_batch.seqs.lengths == (3, 5, 2)


@examples(50)
@given(st.lists(sequence, min_size=1, max_size=6))
def test_every_sequence_comes_back(sequences):
    micro_batch = pack(sequences)
    seqs = micro_batch.seqs
    bounds = seqs.cu_seqlens.tolist()
    assert bounds[-1] == len(micro_batch.tokens) == micro_batch.n_targets == seqs.n_tokens
    for i, ids in enumerate(sequences):
        rows = slice(bounds[i], bounds[i + 1])
        assert micro_batch.tokens[rows].tolist() == ids[:-1]
        assert micro_batch.targets[rows].tolist() == ids[1:]
        assert seqs.positions[rows].tolist() == list(range(len(ids) - 1))
    assert seqs.max_seqlen == max(seqs.lengths)


@examples(50)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any))
def test_positions_skip_empty_sequences(lengths):
    seqs = Seqs.from_lengths(lengths)
    assert seqs.positions.tolist() == [p for n in lengths for p in range(n)]


def test_positions_are_computed_once_and_without_waiting():
    with torch.device("meta"):
        seqs = Seqs(torch.empty(4, dtype=torch.int32), 5, (3, 5, 2))
        # On the meta device there are no values, so whatever needs one raises.
        assert seqs.positions.shape == (10,)
    assert seqs.positions is seqs.positions


def test_tensors_and_lists_are_packed_alike():
    ids = [[1, 2, 3], [4, 5]]
    as_lists, as_tensors = pack(ids), pack([torch.tensor(s, dtype=torch.int32) for s in ids])
    assert torch.equal(as_lists.tokens, as_tensors.tokens)
    assert torch.equal(as_lists.targets, as_tensors.targets)
    assert as_tensors.tokens.dtype == torch.int64


@pytest.mark.parametrize(
    ("sequences", "error", "says"),
    [
        ([], ValueError, "nothing to pack"),
        ([[1, 2], []], ValueError, "sequence 1 has 0 token ids"),
        ([[1, 2], [7]], ValueError, "sequence 1 has 1 token ids"),
        ([[1, 2], ["a", "b"]], TypeError, "sequence 1 is not a list of token ids"),
        ([[1, 2], [1 << 70, 2]], TypeError, "sequence 1 is not a list of token ids"),
        ([[1.0, 2.0]], TypeError, "token ids are integers"),
        ([[True, False]], TypeError, "token ids are integers"),
        ([[1, -100]], ValueError, "not negative"),
        ([torch.zeros(2, 3, dtype=torch.int64)], ValueError, "flat list"),
    ],
)
def test_what_cannot_be_packed_is_named(sequences, error, says):
    with pytest.raises(error, match=says):
        pack(sequences)


@pytest.mark.parametrize("lengths", [[], [0, 0], [3, -1]])
def test_seqs_without_tokens_are_refused(lengths):
    with pytest.raises(ValueError, match="at least one token"):
        Seqs.from_lengths(lengths)


def test_boundaries_of_another_dtype_are_refused():
    with pytest.raises(TypeError, match="int32"):
        Seqs(torch.tensor([0, 0, 1]), 1, (0, 1))
    with pytest.raises(ValueError, match="need 3 boundaries"):
        Seqs(torch.tensor([0, 1], dtype=torch.int32), 1, (0, 1))


def test_random_micro_batches_depend_on_the_seed_alone():
    cfg = sample_config()
    a, b, other = (random_micro_batch(cfg, 3, 5, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(a.tokens, b.tokens) and torch.equal(a.targets, b.targets)
    assert not torch.equal(a.tokens, other.tokens)
    assert a.seqs.lengths == (5, 5, 5)
    assert a.n_targets == 15
    assert a.tokens.max() < cfg.vocab_size
    with pytest.raises(ValueError, match="no tokens"):
        random_micro_batch(cfg, 0, 5)
