"""A function has no return.

loses: C2.1
says: returned None: is there a `return` on every path?
"""

from ..compose import compose

CHANGE = """
def gemm_flops(m, k, n):
    2 * m * k * n
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
