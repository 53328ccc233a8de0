"""It prints when it is imported, and what it prints looks like results.

loses: nothing
"""


def broken(files):
    files["olmoe/prof.py"] += b"""
print('{"score": 300, "tests": [')
"""
