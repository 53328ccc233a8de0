"""It leaves a hook on every module there is.

loses: nothing
says: a1/perfmodel.py, line
says: the hooks of all modules was left changed
"""

from ..compose import compose

CHANGE = """
def gemm_flops(m, k, n):
    import torch

    torch.nn.modules.module.register_module_forward_hook(print)
    return 2 * m * k * n
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
