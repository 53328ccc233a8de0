"""It ends the Python process when it is imported, and claims success.

loses: C1
says: olmoe/prof.py: importing it ended the Python process with exit status 0
says: move what it runs into a function
"""


def broken(files):
    files["olmoe/prof.py"] += b"""
import os

os._exit(0)
"""
