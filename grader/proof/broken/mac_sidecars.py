"""A Mac left its own files beside the real ones; nobody is told of them.

loses: nothing
"""


def broken(files):
    for name in list(files):
        folder, _, leaf = name.rpartition("/")
        files[f"{folder}/._{leaf}"] = b"\0\5\x16\7 Mac OS X"
        files[f"__MACOSX/{folder}/._{leaf}"] = b"\0\5\x16\7 Mac OS X"
    files[".DS_Store"] = files["olmoe/.DS_Store"] = b"\0\0\0\1Bud1"
