"""It starts a process that holds its output and never ends.

loses: nothing
"""

from ..compose import compose

CHANGE = """
def gemm_flops(m, k, n):
    import subprocess

    subprocess.Popen(["sleep", "4711"], start_new_session=True)
    return 2 * m * k * n
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
