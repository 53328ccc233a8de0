"""An endless loop that swallows every exception, in a function that is tested.

loses: C2.1
says: a1/perfmodel.py, line
says: the code under test took longer than 3 s. Is there a loop that never ends?
"""

from ..compose import compose

CHANGE = """
def gemm_flops(m, k, n):
    while True:
        try:
            m += 1
        except BaseException:
            pass
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
