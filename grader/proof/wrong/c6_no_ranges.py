"""Opens no NVTX ranges.

exercise: C6
caught by: C6.4
says: opened no NVTX ranges
"""


# file: olmoe/train.py
def accumulated_step(model, optimizer, micro_batches, recompute=False):
    count = sum(m.n_targets for m in micro_batches)
    losses = []
    optimizer.zero_grad()
    for m in micro_batches:
        loss = lm_loss(model(m.tokens, m.seqs, recompute=recompute), m.targets, count)
        loss.backward()
        losses.append(loss.detach())
    optimizer.step()
    optimizer.zero_grad()
    return torch.stack(losses).sum()
