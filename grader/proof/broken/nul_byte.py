"""A crash of the editor left a hole of zero bytes in the file.

loses: C2
says: a1/perfmodel.py, line
says: holds a NUL byte, so the file is damaged
"""


def broken(files):
    files["a1/perfmodel.py"] += b"\0" * 64
