"""A running total, gradients set to None by hand.

exercise: C6
"""


# file: olmoe/train.py
def accumulated_step(model, optimizer, micro_batches, recompute=False):
    count = 0
    for m in micro_batches:
        count += m.n_targets
    for p in model.parameters():
        p.grad = None
    total = torch.zeros((), device=micro_batches[0].tokens.device)
    for m in micro_batches:
        with nvtx_range("forward"):
            loss = lm_loss(model(m.tokens, m.seqs, recompute), m.targets, count)
        with nvtx_range("backward"):
            loss.backward()
        total += loss.detach()
    with nvtx_range("optimizer"):
        optimizer.step()
    for p in model.parameters():
        p.grad = None
    return total
