"""A list that contains itself twice, so that it has no end.

loses: C2.1
says: a1/perfmodel.py: RecursionError: maximum recursion depth exceeded
"""

from ..compose import compose

CHANGE = """
def endless():
    a = []
    a += [a, a]
    return a


def gemm_flops(m, k, n):
    return endless()
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
