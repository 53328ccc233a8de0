"""A number that is none.

loses: C2.1
says: returned nan, which is not a finite number
"""

from ..compose import compose

CHANGE = """
def gemm_flops(m, k, n):
    return float("nan")
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
