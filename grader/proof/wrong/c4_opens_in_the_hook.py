"""Opens and closes the range after the forward.

exercise: C4
caught by: C4.1
says: opened after its forward has begun
"""


# file: olmoe/prof.py
def annotate(model):
    handles = []
    for path, module in model.named_modules():
        if path:

            def mark(module, args, output, path=path):
                with nvtx_range(path):
                    pass

            handles.append(module.register_forward_hook(mark, always_call=True))
    return lambda: [handle.remove() for handle in handles]
