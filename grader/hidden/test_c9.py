"""Coding 9 again, against measurements of other configurations."""

import pytest

from ..public.test_c9 import *
from ..truth import picked, read_truth, truth_path


@pytest.fixture
def truth(secret):
    """Reads the term's choice of the hidden configurations."""
    return lambda: picked(read_truth(truth_path(hidden=True)), secret)
