"""A function raises an exception of its own, whose message cannot be had.

loses: C2.1
says: a1/perfmodel.py, line
says: Odd: (its message could not be read)
staff: Traceback
"""

from ..compose import compose

CHANGE = """
class Odd(Exception):
    def __str__(self):
        raise RuntimeError("no")


def gemm_flops(m, k, n):
    raise Odd()
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
