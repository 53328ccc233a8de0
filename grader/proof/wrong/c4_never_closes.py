"""Opens ranges and closes none.

exercise: C4
caught by: C4.1
says: each must be closed when its module's forward ends
"""


# file: olmoe/prof.py
def annotate(model):
    handles = []
    for path, module in model.named_modules():
        if not path:
            continue

        def before(module, args, path=path):
            range_push(path)

        handles.append(module.register_forward_pre_hook(before))

    def remove():
        for handle in handles:
            handle.remove()

    return remove
