"""The number as text.

loses: C2.1
says: returned a string; it must return a number
"""

from ..compose import compose

CHANGE = """
def gemm_flops(m, k, n):
    return str(2 * m * k * n)
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
