"""It calls sys.exit when it is imported.

loses: C1
says: olmoe/prof.py, line
says: SystemExit: 0
says: A file that is imported must not exit
"""


def broken(files):
    files["olmoe/prof.py"] += b"""
sys.exit(0)
"""
