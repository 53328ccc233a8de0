"""True, which counts as 1 elsewhere.

loses: C2.1
says: returned a bool; it must return a number
"""

from ..compose import compose

CHANGE = """
def gemm_flops(m, k, n):
    return True
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
