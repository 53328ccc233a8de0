"""The hidden suite: the public properties, with amounts derived from the term's secret."""

from __future__ import annotations

import tomllib

import pytest

from ..suite.places import ROOT


@pytest.fixture(scope="session")
def secret() -> str:
    return tomllib.loads((ROOT / "staff" / "term.toml").read_text(encoding="utf-8"))["secret"]
