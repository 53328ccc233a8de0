"""An editor for Windows saved the sources: CRLF line ends, a byte order mark.

loses: nothing
"""


def broken(files):
    for name, data in files.items():
        files[name] = b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n")
