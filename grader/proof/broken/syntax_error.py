"""A bracket was not closed.

loses: C1
says: olmoe/prof.py, line
says: SyntaxError: '(' was never closed
says: The file cannot be imported, so none of its exercises can be tested
staff: Traceback
"""


def broken(files):
    files["olmoe/prof.py"] += b"""
def more():
    return max(1, 2
"""
