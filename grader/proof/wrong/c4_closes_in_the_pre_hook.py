"""Opens and closes the range before the forward.

exercise: C4
caught by: C4.1
says: closed before its forward begins
"""


# file: olmoe/prof.py
def annotate(model):
    handles = []
    for path, module in model.named_modules():
        if not path:
            continue

        def before(module, args, path=path):
            range_push(path)
            range_pop()

        handles.append(module.register_forward_pre_hook(before))

    def remove():
        for handle in handles:
            handle.remove()

    return remove
