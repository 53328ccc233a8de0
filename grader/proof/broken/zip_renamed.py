"""A zip whose name was changed to .tar.gz is read all the same.

loses: nothing
staff: the upload is a zip archive
"""

from ...tests.judge.samples import zip_of


def upload(files):
    return zip_of(files)
