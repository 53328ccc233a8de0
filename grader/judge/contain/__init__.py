"""How far the solver is shut in: the strongest rung of a ladder that this machine allows.

`python -m grader.judge.contain` prints which rungs work here, and why the others do not.
"""

from .cell import Cell
from .ladder import (
    BUBBLEWRAP,
    LADDER,
    LANDLOCK,
    NONE,
    OWN_USER,
    OWN_USER_LANDLOCK,
    Found,
    Rung,
    attempt,
    strongest,
    survey,
)

__all__ = [
    "BUBBLEWRAP",
    "LADDER",
    "LANDLOCK",
    "NONE",
    "OWN_USER",
    "OWN_USER_LANDLOCK",
    "Cell",
    "Found",
    "Rung",
    "attempt",
    "strongest",
    "survey",
]
