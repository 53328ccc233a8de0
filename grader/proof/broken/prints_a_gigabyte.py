"""It prints a gigabyte.

loses: C2.1
says: the code under test printed more than 256 MiB. Print less
"""

from ..compose import compose

CHANGE = """
def gemm_flops(m, k, n):
    global printed
    if not printed:
        printed = True
        for _ in range(1000):
            print("x" * 1_000_000)
    return 2 * m * k * n


printed = False
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
