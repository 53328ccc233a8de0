"""Draws a new secret for the hidden suite: `python staff/tools/new_term.py fall27`."""

from __future__ import annotations

import re
import secrets
import sys
from pathlib import Path

TERM = Path(__file__).resolve().parents[1] / "term.toml"


def main() -> int:
    term = sys.argv[1] if len(sys.argv) == 2 else ""
    if not re.fullmatch(r"[a-z]+\d\d", term):
        print("give the term: make new-term TERM=fall27", file=sys.stderr)
        return 2
    text = TERM.read_text(encoding="utf-8")
    text = re.sub(r'^term = ".*"$', f'term = "{term}"', text, flags=re.MULTILINE)
    text = re.sub(r'^secret = ".*"$', f'secret = "{secrets.token_hex(16)}"', text, flags=re.M)
    TERM.write_text(text, encoding="utf-8")
    print(f"{TERM}: a new secret for {term}; commit it, and run `make prove`")
    return 0


if __name__ == "__main__":
    sys.exit(main())
