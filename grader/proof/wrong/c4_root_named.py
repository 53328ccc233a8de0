"""Gives the model itself a range named by its class.

exercise: C4
caught by: C4.1
says: the model itself has a range
"""


# file: olmoe/prof.py
def annotate(model):
    handles = []
    for path, module in model.named_modules():
        path = path or type(model).__name__

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
