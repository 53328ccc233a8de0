"""It kills the process that it was forked from.

loses: C2.1
says: a1/perfmodel.py: the code under test ended the
staff: The hand-in's code killed the solver, which was started again
"""

from ..compose import compose

CHANGE = """
def gemm_flops(m, k, n):
    import os

    os.kill(os.getppid(), 9)
    os._exit(0)
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
