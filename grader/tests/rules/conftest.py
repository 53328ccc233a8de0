import pytest

from ...proof.mistakes.tally import copy_with_plots
from .sets import COMPLETE


@pytest.fixture
def folder(tmp_path):
    """A complete honest set, to be changed."""
    return copy_with_plots(COMPLETE, tmp_path / "a1")
