"""Files named like Python's and the grader's own came along; they are not used.

loses: nothing
staff: ignored, not part of the hand-in
"""


def broken(files):
    for name in ("random.py", "torch.py", "olmoe/__init__.py", "conftest.py", "tests/test_c1.py"):
        files[name] = b"raise SystemExit('the wrong file was imported')\n"
