"""The folder was packed rather than what is in it.

loses: nothing
staff: everything lay in a folder, assignment-1/
"""

from ...tests.judge.samples import tar_gz


def upload(files):
    return tar_gz({f"assignment-1/{name}": data for name, data in files.items()})
