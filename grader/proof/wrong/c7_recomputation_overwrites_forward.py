"""Does not ask in_backward(): a recomputed layer's hooks fire again.

exercise: C7
caught by: C7.3
says: fire again, in the middle
"""


# file: olmoe/train.py
def stage_times(model, optimizer, micro_batch, recompute=False, warmup=2, steps=5):
    stages = [("embed", model.embed)]
    stages += [(f"layers.{i}", layer) for i, layer in enumerate(model.layers)]
    names = [name for name, _ in stages] + ["head"]
    handles, taken = [], []

    def now():
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def watch(name, module):
        def before(module, args):
            if in_backward():
                pass

        def after(module, args, output):
            ends[name] = now()
            if output is not None:
                output.register_hook(lambda grad: back.append(now()))

        handles.append(module.register_forward_pre_hook(before))
        handles.append(module.register_forward_hook(after, always_call=True))

    try:
        for name, module in stages:
            watch(name, module)
        for _ in range(warmup + steps):
            optimizer.zero_grad()
            start, ends, back, again = now(), {}, [], {}
            logits = model(micro_batch.tokens, micro_batch.seqs, recompute=recompute)
            loss = lm_loss(logits, micro_batch.targets, micro_batch.n_targets)
            ends["head"] = turn = now()
            loss.backward()
            there = [start, *(ends[name] for name in names)]
            back = [turn, *back[-len(stages) :], now()]
            optimizer.step()
            taken.append((there, back, again, now()))
            optimizer.zero_grad()
    finally:
        for handle in handles:
            handle.remove()
    torch.cuda.synchronize()

    def times_of(step):
        there, back, again, end = step
        times = {"optimizer": back[-1].elapsed_time(end)}
        for i, name in enumerate(names):
            start_end = again.get(name)
            rerun = start_end[0].elapsed_time(start_end[1]) if start_end else 0.0
            times[name, "forward"] = there[i].elapsed_time(there[i + 1])
            times[name, "backward"] = back[-i - 2].elapsed_time(back[-i - 1]) - rerun
            times[name, "recompute"] = rerun
        return times

    rows = [times_of(step) for step in taken[warmup:]]
    ms = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    kinds = ("forward", "backward", "recompute")
    return {name: {kind: ms[name, kind] for kind in kinds} for name in names}, ms["optimizer"]
