"""It imports a package that the course's environment does not hold.

loses: C1
says: olmoe/prof.py, line
says: No module named 'flash_profiler'
says: do without it
staff: Traceback
"""


def broken(files):
    files["olmoe/prof.py"] += b"""
import flash_profiler
"""
