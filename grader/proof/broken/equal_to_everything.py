"""An object that is equal to everything, also when it is a float.

loses: C2.1
says: returned an object of type a1.perfmodel.Right; it must return a number
"""

from ..compose import compose

CHANGE = """
class Right(float):
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0

    def __lt__(self, other):
        return True

    __le__ = __gt__ = __ge__ = __lt__


def gemm_flops(m, k, n):
    return Right(1)
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
