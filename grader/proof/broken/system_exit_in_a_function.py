"""It calls sys.exit inside a test.

loses: C2.1
says: a1/perfmodel.py, line
says: SystemExit: done
staff: Traceback
"""

from ..compose import compose

CHANGE = """
def gemm_flops(m, k, n):
    raise SystemExit("done")
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
