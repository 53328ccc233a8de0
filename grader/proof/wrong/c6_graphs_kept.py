"""Keeps every graph with retain_graph, and the losses that hold on to them.

exercise: C6
caught by: C6.3
says: were still alive
"""


# file: olmoe/train.py
def accumulated_step(model, optimizer, micro_batches, recompute=False):
    count = sum(m.n_targets for m in micro_batches)
    losses = []
    optimizer.zero_grad()
    for m in micro_batches:
        with nvtx_range("forward"):
            loss = lm_loss(model(m.tokens, m.seqs, recompute=recompute), m.targets, count)
        with nvtx_range("backward"):
            loss.backward(retain_graph=True)
        losses.append(loss)
    with nvtx_range("optimizer"):
        optimizer.step()
    optimizer.zero_grad()
    return torch.stack(losses).sum().detach()
