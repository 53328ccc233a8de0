"""module.apply visits the modules, a dict knows their paths.

exercise: C4
"""


# file: olmoe/prof.py
def annotate(model):
    paths = {module: path for path, module in model.named_modules()}
    handles = []
    seen = {model}

    def visit(module):
        if module in seen:
            return
        seen.add(module)
        name = paths[module]
        handles.append(module.register_forward_pre_hook(lambda m, a: range_push(name)))
        handles.append(module.register_forward_hook(lambda m, a, o: range_pop(), always_call=True))

    model.apply(visit)

    def remove():
        while handles:
            handles.pop().remove()

    return remove
