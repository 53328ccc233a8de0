"""Coding 8 again, with shapes that nobody has seen."""

from ..public.test_c8 import *
