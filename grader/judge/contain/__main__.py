"""Prints which rungs of the ladder work on this machine, and why the others do not."""

from __future__ import annotations

import getpass
import os
import textwrap

from .ladder import means, survey


def main() -> None:
    account = "root" if os.geteuid() == 0 else f"uid {os.geteuid()}"
    print(f"As {account} ({_name()}); {'; '.join(means())}.\n")
    chosen = False
    for found in survey():
        rung = found.rung
        verdict = "works" if found.works else "not here"
        if found.works and not chosen:
            verdict, chosen = "CHOSEN", True
        hidden = "hidden tests run" if rung.hides_staff_files else "hidden tests do not run"
        print(f"{rung.name:18} {verdict:9} {hidden if found.works else found.why_not}")
        if found.works and not rung.hides_staff_files and rung.why_not_hidden:
            print(textwrap.indent(rung.why_not_hidden, " " * 29))


def _name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "no name"


if __name__ == "__main__":
    main()
