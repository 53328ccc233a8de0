"""One line is indented with a tab.

loses: C1
says: olmoe/prof.py, line
says: TabError
says: Indent with spaces alone
"""


def broken(files):
    files["olmoe/prof.py"] += b"""
def more(a):
    if a:
        a = 1
	return a
"""
