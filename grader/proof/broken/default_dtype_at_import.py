"""Importing it changes torch's default dtype for everybody.

loses: nothing
says: olmoe/prof.py, line
says: importing the file changes torch's default dtype for everybody. That was undone
"""


def broken(files):
    files["olmoe/prof.py"] += b"""
torch.set_default_dtype(torch.float64)
"""
