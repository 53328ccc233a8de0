"""Takes off the hooks that close ranges, and not those that open them.

exercise: C4
caught by: C4.3
says: forward pre-hooks were not removed
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

        module.register_forward_pre_hook(before)
        handles.append(module.register_forward_hook(after, always_call=True))

    def remove():
        for handle in handles:
            handle.remove()

    return remove
