"""Opens ranges without range_push, so a recomputation looks like a forward.

exercise: C4
caught by: C4.4
says: open ranges with range_push
"""


# file: olmoe/prof.py
def annotate(model):
    handles = []
    for path, module in model.named_modules():
        if not path:
            continue

        def before(module, args, path=path):
            torch.cuda.nvtx.range_push(path)

        def after(module, args, output):
            torch.cuda.nvtx.range_pop()

        handles.append(module.register_forward_pre_hook(before))
        handles.append(module.register_forward_hook(after, always_call=True))

    def remove():
        for handle in handles:
            handle.remove()

    return remove
