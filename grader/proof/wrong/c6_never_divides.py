"""Adds the losses up and divides by nothing.

exercise: C6
caught by: C6.1
says: never divided
"""


# file: olmoe/train.py
def accumulated_step(model, optimizer, micro_batches, recompute=False):
    total = 0.0
    optimizer.zero_grad()
    for m in micro_batches:
        with nvtx_range("forward"):
            loss = lm_loss(model(m.tokens, m.seqs, recompute=recompute), m.targets, 1)
        with nvtx_range("backward"):
            loss.backward()
        total = total + loss.detach()
    with nvtx_range("optimizer"):
        optimizer.step()
    optimizer.zero_grad()
    return total
