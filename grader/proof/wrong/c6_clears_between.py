"""Clears the gradients before every micro batch.

exercise: C6
caught by: C6.1
says: the gradient of the last micro batch alone
"""


# file: olmoe/train.py
def accumulated_step(model, optimizer, micro_batches, recompute=False):
    count = sum(m.n_targets for m in micro_batches)
    total = 0.0
    for m in micro_batches:
        optimizer.zero_grad()
        with nvtx_range("forward"):
            loss = lm_loss(model(m.tokens, m.seqs, recompute=recompute), m.targets, count)
        with nvtx_range("backward"):
            loss.backward()
        total = total + loss.detach()
    with nvtx_range("optimizer"):
        optimizer.step()
    optimizer.zero_grad()
    return total
