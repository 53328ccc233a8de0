"""It reads memory that is not there.

loses: C2.1
says: a1/perfmodel.py, line
says: the code under test ended the Python process with signal SIGSEGV
"""

from ..compose import compose

CHANGE = """
def gemm_flops(m, k, n):
    import ctypes

    ctypes.string_at(0)
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
