"""Goes down by hand and remembers which modules it has met.

exercise: C4
"""


# file: olmoe/prof.py
def annotate(model):
    handles, met = [], {id(model)}

    def down(module, prefix):
        for name, child in module.named_children():
            if id(child) in met:
                continue
            met.add(id(child))
            path = prefix + name
            handles.append(child.register_forward_pre_hook(_opener(path), prepend=True))
            handles.append(child.register_forward_hook(_close, always_call=True))
            down(child, path + ".")

    down(model, "")
    return lambda: _remove_all(handles)


def _opener(path):
    def hook(module, inputs):
        range_push(path)

    return hook


def _close(module, inputs, output):
    range_pop()


def _remove_all(handles):
    for handle in handles:
        handle.remove()
