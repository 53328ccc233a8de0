"""It leaves deterministic algorithms demanded.

loses: nothing
says: a1/perfmodel.py, line
says: whether torch demands deterministic algorithms was left changed
"""

from ..compose import compose

CHANGE = """
def gemm_flops(m, k, n):
    import torch

    torch.use_deterministic_algorithms(True)
    return 2 * m * k * n
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
