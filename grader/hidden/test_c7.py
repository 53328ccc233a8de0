"""Coding 7 again, with amounts that nobody has seen."""

from ..public.test_c7 import *
