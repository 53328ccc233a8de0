"""Means of the micro batches, weighted by their shares of the global batch.

exercise: C6
"""


# file: olmoe/train.py
def accumulated_step(model, optimizer, micro_batches, recompute=False):
    shares = [m.n_targets / sum(m.n_targets for m in micro_batches) for m in micro_batches]
    losses = []
    optimizer.zero_grad()
    for share, m in zip(shares, micro_batches):
        with nvtx_range("forward"):
            logits = model(tokens=m.tokens, seqs=m.seqs, recompute=recompute)
            mean = F.cross_entropy(logits.float(), m.targets, ignore_index=IGNORE)
            del logits
        with nvtx_range("backward"):
            (mean * share).backward()
        losses.append(mean.detach() * share)
        del mean
    with nvtx_range("optimizer"):
        optimizer.step()
    optimizer.zero_grad()
    return sum(losses)
