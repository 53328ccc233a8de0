"""functools.partial gives each hook its path.

exercise: C4
"""

# file: olmoe/prof.py
from functools import partial


def _open(path, module, args):
    range_push(path)


def _close(module, args, output):
    range_pop()


def annotate(model):
    removals = []
    for path, module in list(model.named_modules())[1:]:
        removals += [
            module.register_forward_pre_hook(partial(_open, path)).remove,
            module.register_forward_hook(_close, always_call=True).remove,
        ]
    return lambda: [removal() for removal in removals] and None
