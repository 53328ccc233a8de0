"""It prints a gigabyte: slow, but no crime.

loses: nothing
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
