"""Returns nothing.

exercise: C4
caught by: C4.3
says: annotate returned None
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
        handles.append(module.register_forward_hook(after, always_call=True))
