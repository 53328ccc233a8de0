"""It ends the Python process inside a test, and claims success.

loses: C2.1
says: a1/perfmodel.py: the code under test ended the Python process with exit status 0
says: It must return or raise, not exit
"""

from ..compose import compose

CHANGE = """
def gemm_flops(m, k, n):
    import os

    os._exit(0)
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
