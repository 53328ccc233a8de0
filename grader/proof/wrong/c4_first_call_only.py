"""Its hooks take themselves off after the first call.

exercise: C4
caught by: C4.1
says: its range was opened once
"""


# file: olmoe/prof.py
def annotate(model):
    handles = []
    for path, module in model.named_modules():
        if path:
            _annotate(module, path, handles)
    return lambda: [handle.remove() for handle in handles]


def _annotate(module, path, handles):
    def after(module, args, output):
        range_pop()
        opens.remove()
        closes.remove()

    opens = module.register_forward_pre_hook(lambda module, args: range_push(path))
    closes = module.register_forward_hook(after, always_call=True)
    handles += [opens, closes]
