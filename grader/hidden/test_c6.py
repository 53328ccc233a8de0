"""Coding 6 again, with amounts that nobody has seen."""

from ..public.test_c6 import *
