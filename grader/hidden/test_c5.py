"""Coding 5 again, with amounts that nobody has seen."""

from ..public.test_c5 import *
