"""Annotates only modules that have no children.

exercise: C4
caught by: C4.1
says: was called and has no range
"""


# file: olmoe/prof.py
def annotate(model):
    handles = []
    for path, module in model.named_modules():
        if not path or list(module.children()):
            continue

        def before(module, args, path=path):
            range_push(path)

        def after(module, args, output):
            range_pop()

        handles.append(module.register_forward_pre_hook(before))
        handles.append(module.register_forward_hook(after, always_call=True))

    def remove():
        for handle in handles:
            handle.remove()

    return remove
