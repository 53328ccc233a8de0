"""The disk was full, so the file has no bytes.

loses: C1 C2
says: the file is empty (0 bytes)
"""


def upload(files):
    return b""
