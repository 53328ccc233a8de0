"""One object per module is both of its hooks, and enters nvtx_range.

exercise: C4
"""


# file: olmoe/prof.py
class _Annotation:
    def __init__(self, path, module):
        self.path = path
        self.open = []
        self.handles = (
            module.register_forward_pre_hook(self.enter, with_kwargs=True),
            module.register_forward_hook(self.leave, with_kwargs=True, always_call=True),
        )

    def enter(self, module, args, kwargs):
        self.open.append(nvtx_range(self.path))
        self.open[-1].__enter__()

    def leave(self, module, args, kwargs, output):
        self.open.pop().__exit__(None, None, None)

    def remove(self):
        for handle in self.handles:
            handle.remove()


def annotate(model):
    annotations = [_Annotation(path, m) for path, m in model.named_modules() if m is not model]

    def remove():
        for annotation in annotations:
            annotation.remove()

    return remove
