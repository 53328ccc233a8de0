"""Gradients from torch.autograd.grad, added up by hand.

exercise: C6
"""


# file: olmoe/train.py
def accumulated_step(model, optimizer, micro_batches, recompute=False):
    count = sum(m.n_targets for m in micro_batches)
    params = [p for p in model.parameters() if p.requires_grad]
    sums, losses = None, []
    optimizer.zero_grad(set_to_none=True)
    for m in micro_batches:
        with nvtx_range("forward"):
            loss = lm_loss(model(m.tokens, m.seqs, recompute=recompute), m.targets, count)
        with nvtx_range("backward"):
            grads = torch.autograd.grad(loss, params)
        if sums is None:
            sums = list(grads)
        else:
            for total, grad in zip(sums, grads):
                total.add_(grad)
        losses.append(loss.detach())
        del grads, loss
    for p, total in zip(params, sums):
        p.grad = total
    with nvtx_range("optimizer"):
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return torch.stack(losses).sum()
