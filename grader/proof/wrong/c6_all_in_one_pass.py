"""Puts the micro batches back together and calls train_step.

exercise: C6
caught by: C6.3
says: in one pass
"""

# file: olmoe/train.py
from olmoe.data import MicroBatch, Seqs


def accumulated_step(model, optimizer, micro_batches, recompute=False):
    whole = MicroBatch(
        tokens=torch.cat([m.tokens for m in micro_batches]),
        targets=torch.cat([m.targets for m in micro_batches]),
        seqs=Seqs.from_lengths(
            [n for m in micro_batches for n in m.seqs.lengths], micro_batches[0].tokens.device
        ),
        n_targets=sum(m.n_targets for m in micro_batches),
    )
    return train_step(model, optimizer, whole, recompute=recompute)
