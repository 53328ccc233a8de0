"""It starts processes without end.

loses: C2.1
says: a1/perfmodel.py, line
says: the code under test had more than 20 processes
"""

from ..compose import compose

CHANGE = """
def gemm_flops(m, k, n):
    import subprocess

    started = [subprocess.Popen(["sleep", "4711"]) for _ in range(60)]
    return [process.wait() for process in started]
"""


def broken(files):
    source = files["a1/perfmodel.py"].decode()
    files["a1/perfmodel.py"] = compose(source, CHANGE).encode()
