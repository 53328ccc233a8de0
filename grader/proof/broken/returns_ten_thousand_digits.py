"""An integer that no float can hold.

loses: C2.1
says: it must return a number
"""

from ..compose import compose

CHANGE = """
def gemm_flops(m, k, n):
    return 10**10_000
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
