"""Coding 4 again, with models that nobody has seen."""

from ..public.test_c4 import *
