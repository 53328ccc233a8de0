"""It leaves torch's default device changed.

loses: nothing
says: a1/perfmodel.py, line
says: torch's default device was left changed
"""

from ..compose import compose

CHANGE = """
def gemm_flops(m, k, n):
    import torch

    torch.set_default_device("meta")
    return 2 * m * k * n
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
