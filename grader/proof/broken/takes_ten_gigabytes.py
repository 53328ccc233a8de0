"""It fills ten gigabytes of memory.

loses: C2.1
says: a1/perfmodel.py, line
says: the code under test used more than 700 MiB of memory
"""

from ..compose import compose

CHANGE = """
def gemm_flops(m, k, n):
    kept = []
    while len(kept) < 1000:
        kept.append(b"x" * 10_000_000)
    return 2 * m * k * n
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
