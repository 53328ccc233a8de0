"""It starts processes without end.

loses: C2.1
says: a1/perfmodel.py, line
says: the code under test had more than 20 processes
"""

from ..compose import compose

CHANGE = """
def gemm_flops(m, k, n):
    import os
    import time

    for _ in range(60):
        if os.fork() == 0:
            time.sleep(1000)
    while True:
        time.sleep(1)
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
