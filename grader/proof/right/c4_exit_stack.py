"""An ExitStack keeps the handles, which are context managers, and closes them.

exercise: C4
"""

# file: olmoe/prof.py
from contextlib import ExitStack


def annotate(model: "nn.Module") -> "Callable[[], None]":
    with ExitStack() as stack:
        for path, module in model.named_modules():
            if path != "":
                stack.enter_context(
                    module.register_forward_pre_hook(lambda *_, p=path: range_push(p))
                )
                stack.enter_context(
                    module.register_forward_hook(lambda *_: range_pop(), always_call=True)
                )
        return stack.pop_all().close
