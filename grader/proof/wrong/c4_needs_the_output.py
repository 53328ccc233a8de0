"""Closes the range only if there is an output; there is none when the forward raises.

exercise: C4
caught by: C4.2
says: when a forward raises, its range is not closed
"""


# file: olmoe/prof.py
def annotate(model):
    handles = []
    for path, module in model.named_modules():
        if not path:
            continue

        def before(module, args, path=path):
            range_push(path)

        def after(module, args, output):
            if isinstance(output, torch.Tensor):
                range_pop()

        handles.append(module.register_forward_pre_hook(before))
        handles.append(module.register_forward_hook(after, always_call=True))

    def remove():
        for handle in handles:
            handle.remove()

    return remove
