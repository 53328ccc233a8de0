"""Hooks on a contextlib.ExitStack, events made beforehand.

exercise: C7
"""

# file: olmoe/train.py
import contextlib


def stage_times(model, optimizer, micro_batch, recompute=False, warmup=2, steps=5):
    modules = {"embed": model.embed}
    modules.update((f"layers.{i}", layer) for i, layer in enumerate(model.layers))
    names = [*modules, "head"]
    last = warmup + steps
    what = ["fwd", "bwd", "start", "end"]
    spare = {
        (step, kind, name): torch.cuda.Event(enable_timing=True)
        for step in range(last)
        for kind in what
        for name in [*names, "begin", "optimizer"]
    }
    recomputed = set()
    step = 0

    def record(kind, name):
        spare[step, kind, name].record()

    with contextlib.ExitStack() as stack:
        for name, module in modules.items():

            def pre(module, args, name=name):
                if in_backward():
                    record("start", name)
                    recomputed.add(name)

            def post(module, args, output, name=name):
                if in_backward():
                    record("end", name)
                elif isinstance(output, torch.Tensor):
                    record("fwd", name)
                    output.register_hook(lambda grad: record("bwd", name))

            stack.callback(module.register_forward_pre_hook(pre).remove)
            stack.callback(module.register_forward_hook(post, always_call=True).remove)
        for step in range(last):
            optimizer.zero_grad(set_to_none=True)
            record("fwd", "begin")
            loss = lm_loss(
                model(micro_batch.tokens, micro_batch.seqs, recompute),
                micro_batch.targets,
                micro_batch.n_targets,
            )
            record("fwd", "head")
            record("bwd", "head")
            loss.backward()
            record("bwd", "begin")
            optimizer.step()
            record("bwd", "optimizer")
            optimizer.zero_grad(set_to_none=True)
        spare[last - 1, "bwd", "optimizer"].synchronize()

    def median(start, end):
        return statistics.median(
            spare[step, *start].elapsed_time(spare[step, *end]) for step in range(warmup, last)
        )

    stages = {}
    for before, name in zip(["begin", *names], names):
        again = median(("start", name), ("end", name)) if name in recomputed else 0.0
        stages[name] = {
            "forward": median(("fwd", before), ("fwd", name)),
            "backward": median(("bwd", name), ("bwd", before)) - again,
            "recompute": again,
        }
    return stages, median(("bwd", "begin"), ("bwd", "optimizer"))
