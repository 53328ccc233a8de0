"""Coding 2 again, with shapes that nobody has seen."""

from ..public.test_c2 import *
