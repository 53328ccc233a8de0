"""A class of honest students, drawn from a measured set."""

import pytest

from grader.proof.fabrications.forge import copy
from grader.proof.fabrications.tally import Course
from grader.staff_rules.sidecars import HONEST

SETS = sorted(folder for folder in HONEST.iterdir() if folder.is_dir())


@pytest.fixture
def folder(tmp_path):
    """A measured set that may be changed."""
    return copy(SETS[0], tmp_path / "results", seed=1)


@pytest.fixture(scope="session", params=SETS, ids=lambda path: path.name)
def course(request, tmp_path_factory):
    return Course(request.param, tmp_path_factory.mktemp("class"), seed=3)
