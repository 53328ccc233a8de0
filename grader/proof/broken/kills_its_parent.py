"""It tries to kill the process that it was forked from, which it may not.

loses: C2.1
says: PermissionError: [Errno 1] Operation not permitted
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
