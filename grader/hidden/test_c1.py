"""Coding 1 again, with amounts that nobody has seen."""

from ..public.test_c1 import *
