"""A class whose bound methods are the hooks, in olmoe/prof.py.

exercise: C7
"""

# file: olmoe/train.py
from olmoe.prof import StageClock


def stage_times(model, optimizer, micro_batch, recompute=False, warmup=2, steps=5):
    clock = StageClock(model)
    try:
        for _ in range(warmup + steps):
            optimizer.zero_grad()
            clock.begin()
            logits = model(micro_batch.tokens, micro_batch.seqs, recompute=recompute)
            loss = lm_loss(logits, micro_batch.targets, micro_batch.n_targets)
            del logits
            clock.mark("forward", "head")
            loss.backward()
            clock.mark("backward", "")
            optimizer.step()
            clock.mark("optimizer", "")
            optimizer.zero_grad()
    finally:
        clock.close()
    return clock.medians(warmup)


# file: olmoe/prof.py
class StageClock:
    def __init__(self, model):
        self.names = {model.embed: "embed"}
        for i, layer in enumerate(model.layers):
            self.names[layer] = f"layers.{i}"
        self.steps = []
        self.handles = []
        for module in self.names:
            self.handles.append(module.register_forward_pre_hook(self.enter))
            self.handles.append(module.register_forward_hook(self.leave, always_call=True))

    def begin(self):
        self.steps.append([])
        self.mark("forward", "")

    def mark(self, kind, name):
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.steps[-1].append((kind, name, event))

    def enter(self, module, args):
        if in_backward():
            self.mark("start", self.names[module])

    def leave(self, module, args, output):
        name = self.names[module]
        if in_backward():
            self.mark("end", name)
        elif output is not None:
            self.mark("forward", name)
            output.register_hook(lambda grad: self.mark("backward", name))

    def close(self):
        while self.handles:
            self.handles.pop().remove()

    def medians(self, warmup):
        torch.cuda.synchronize()
        order = [*self.names.values(), "head"]
        rows, optimizer = [], []
        for step in self.steps[warmup:]:
            times = {
                name: dict.fromkeys(("forward", "backward", "recompute"), 0.0) for name in order
            }
            at, entered = None, "head"
            for kind, name, event in step:
                ms = at.elapsed_time(event) if at else 0.0
                if kind == "forward" and name:
                    times[name]["forward"] += ms
                elif kind in ("backward", "start"):
                    times[entered]["backward"] += ms
                    entered = name or entered if kind == "backward" else entered
                elif kind == "end":
                    times[name]["recompute"] += ms
                elif kind == "optimizer":
                    optimizer.append(ms)
                at = event
            rows.append(times)
        stages = {
            name: {
                kind: statistics.median(row[name][kind] for row in rows) for kind in rows[0][name]
            }
            for name in order
        }
        return stages, statistics.median(optimizer)
