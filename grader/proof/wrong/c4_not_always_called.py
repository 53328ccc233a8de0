"""Leaves a range open when the forward raises.

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
            range_pop()

        handles.append(module.register_forward_pre_hook(before))
        handles.append(module.register_forward_hook(after))

    def remove():
        for handle in handles:
            handle.remove()

    return remove
