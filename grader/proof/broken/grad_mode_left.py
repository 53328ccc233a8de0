"""It leaves autograd switched off.

loses: nothing
says: a1/perfmodel.py, line
says: whether torch records gradients was left changed
"""

from ..compose import compose

CHANGE = """
def gemm_flops(m, k, n):
    import torch

    torch.set_grad_enabled(False)
    return 2 * m * k * n
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
