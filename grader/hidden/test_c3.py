"""Coding 3 again, with shapes that nobody has seen."""

from ..public.test_c3 import *
