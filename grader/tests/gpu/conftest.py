"""A virtual GPU whose data sheet has round figures, for the tests of this folder."""

from types import SimpleNamespace

import pytest

from grader.gpu import open_gpu

SHEET = SimpleNamespace(name="Round GPU", peak_tflops=10.0, peak_gbs=1000.0, memory_gib=1.0)


@pytest.fixture
def gpu():
    with open_gpu("virtual", SHEET) as gpu:
        yield gpu
