"""Returns a loss that is not detached.

exercise: C6
caught by: C6.4
says: still hangs on its graph
"""


# file: olmoe/train.py
def accumulated_step(model, optimizer, micro_batches, recompute=False):
    count = sum(m.n_targets for m in micro_batches)
    total = 0.0
    optimizer.zero_grad()
    for m in micro_batches:
        with nvtx_range("forward"):
            loss = lm_loss(model(m.tokens, m.seqs, recompute=recompute), m.targets, count)
        with nvtx_range("backward"):
            loss.backward()
        total = total + loss
    with nvtx_range("optimizer"):
        optimizer.step()
    optimizer.zero_grad()
    return total
