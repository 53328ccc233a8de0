"""A function has another name.

loses: C2.1
says: a1/perfmodel.py: AttributeError: module 'a1.perfmodel' has no attribute 'gemm_flops'
says: Keep the names and the arguments that the release gives
"""


def broken(files):
    source = files["a1/perfmodel.py"]
    files["a1/perfmodel.py"] = source.replace(b"def gemm_flops", b"def flops_gemm")
