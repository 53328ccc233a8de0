"""A merge was not finished.

loses: C1
says: olmoe/prof.py, line
says: a merge conflict was left in
says: keep one of the two versions and delete the lines of markers
"""


def broken(files):
    files["olmoe/prof.py"] += b"""
<<<<<<< HEAD
A = 1
=======
A = 2
>>>>>>> mine
"""
