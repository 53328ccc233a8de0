"""Gradients of sums, divided in place before the optimizer steps.

exercise: C6
"""


# file: olmoe/train.py
def accumulated_step(model, optimizer, micro_batches, recompute=False):
    optimizer.zero_grad()
    total, count = 0, 0
    for m in micro_batches:
        with nvtx_range("forward"):
            summed = lm_loss(model(m.tokens, m.seqs, recompute=recompute), m.targets, 1)
        with nvtx_range("backward"):
            summed.backward()
        total, count = total + summed.detach(), count + m.n_targets
    with nvtx_range("optimizer"):
        for p in model.parameters():
            p.grad.div_(count)
        optimizer.step()
    optimizer.zero_grad()
    return total / count
