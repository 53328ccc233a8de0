"""An editor saved the file as UTF-16.

loses: C2
says: a1/perfmodel.py is saved as UTF-16. Save it as UTF-8
"""


def broken(files):
    files["a1/perfmodel.py"] = files["a1/perfmodel.py"].decode().encode("utf-16")
