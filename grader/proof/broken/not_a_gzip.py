"""A web page was uploaded: the login page instead of the file.

loses: C1 C2
says: is no .tar.gz archive but a web page
says: Run `make handin` and upload the file that it writes
"""


def upload(files):
    return b"<!DOCTYPE html>\n<title>Sign in</title>\n" + b"<p>Sign in</p>\n" * 60
