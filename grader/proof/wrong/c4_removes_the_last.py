"""Keeps only the last module's handles.

exercise: C4
caught by: C4.3
says: keep the handle of every hook
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
            range_pop()

        handles = [
            module.register_forward_pre_hook(before),
            module.register_forward_hook(after, always_call=True),
        ]

    def remove():
        for handle in handles:
            handle.remove()

    return remove
