"""A file was left out; the exercises of the others are judged.

loses: C2
says: Not in the hand-in: a1/perfmodel.py
says: a1/perfmodel.py is not in the hand-in
"""


def broken(files):
    del files["a1/perfmodel.py"]
