"""The upload broke off: the first file is whole, what follows is not.

loses: C2
says: the upload was cut short
says: a1/perfmodel.py is not in the hand-in
"""

import gzip

from ...tests.judge.samples import tar_of


def upload(files):
    first = "olmoe/prof.py"
    others = {name: data for name, data in files.items() if name != first}
    whole = tar_of({first: files[first]} | others)
    return gzip.compress(whole[: len(files[first]) + 3000])
