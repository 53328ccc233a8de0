"""It closes standard output.

loses: nothing
"""

from ..compose import compose

CHANGE = """
def gemm_flops(m, k, n):
    import sys

    sys.stdout.close()
    return 2 * m * k * n
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
