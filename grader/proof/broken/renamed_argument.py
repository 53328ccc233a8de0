"""An argument has another name.

loses: C1
says: olmoe/prof.py: TypeError: cuda_time() got an unexpected keyword argument 'repeats'
says: Keep the names and the arguments that the release gives
"""

from ..compose import compose

CHANGE = """
def cuda_time(fn, warmup=3, times=10):
    return [1.0] * times
"""


def broken(files):
    source = files["olmoe/prof.py"].decode()
    files["olmoe/prof.py"] = compose(source, CHANGE).encode()
