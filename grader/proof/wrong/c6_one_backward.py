"""Adds the losses up and calls backward once, at the end: all graphs are alive until then.

exercise: C6
caught by: C6.3
says: were still alive
"""


# file: olmoe/train.py
def accumulated_step(model, optimizer, micro_batches, recompute=False):
    count = sum(m.n_targets for m in micro_batches)
    total = 0.0
    optimizer.zero_grad()
    with nvtx_range("forward"):
        for m in micro_batches:
            logits = model(m.tokens, m.seqs, recompute=recompute)
            total = total + lm_loss(logits, m.targets, count)
    with nvtx_range("backward"):
        total.backward()
    with nvtx_range("optimizer"):
        optimizer.step()
    optimizer.zero_grad()
    return total.detach()
