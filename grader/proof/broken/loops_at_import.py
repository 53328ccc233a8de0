"""An endless loop that runs when the file is imported.

loses: C1
says: olmoe/prof.py, line
says: importing it took longer than 3 s
says: move what it runs into a function
"""


def broken(files):
    files["olmoe/prof.py"] += b"""
while True:
    pass
"""
