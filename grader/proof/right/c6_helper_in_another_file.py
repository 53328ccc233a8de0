"""One pass as a helper in olmoe/prof.py, where the ranges are.

exercise: C6
"""

# file: olmoe/train.py
from olmoe.prof import one_pass, range_pop, range_push


def accumulated_step(model, optimizer, micro_batches, recompute=False):
    count = sum(m.n_targets for m in micro_batches)
    optimizer.zero_grad()
    total = sum(one_pass(model, m, lm_loss, count, recompute) for m in micro_batches)
    range_push("optimizer")
    optimizer.step()
    range_pop()
    optimizer.zero_grad()
    return total


# file: olmoe/prof.py
def one_pass(model, micro_batch, loss_of, count, recompute):
    range_push("forward")
    logits = model(micro_batch.tokens, micro_batch.seqs, recompute=recompute)
    loss = loss_of(logits, micro_batch.targets, count)
    range_pop()
    range_push("backward")
    loss.backward()
    range_pop()
    return loss.detach()
