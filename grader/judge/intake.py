"""Opens a hand-in: which of its files count, what is wrong with it, who made it.

Nothing is extracted. A hand-in is a dictionary of names and bytes, and holds no name that the
assignment's table does not allow. Whatever is wrong is a sentence: for the student in `problems`,
with what to do about it, or for the staff in `notes`. Only a fault of the machine (the upload
cannot be read from disk) is an exception.
"""

from __future__ import annotations

import hashlib
import json
import re
import tokenize
import unicodedata
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from shared.assignment import Assignment

from .members import Limits, Member, Unreadable, members

MANIFEST = "manifest.json"
MANIFEST_BYTES = 1_000_000
NAME_CHARS = 240
ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")
SHOWN = 12  # names listed in one message
AGAIN = "Run `make handin` and upload the file that it writes."
JUNK_FOLDERS = {"__MACOSX", "__pycache__", ".git", ".ipynb_checkpoints", ".venv", ".pytest_cache"}
JUNK_FILES = {".DS_Store", "Thumbs.db", "desktop.ini", ".gitignore", ".gitattributes"}
TEXT_SUFFIXES = {".py", ".md", ".csv", ".json"}
CONFLICT = re.compile(rb"^(?:<{7}|>{7})(?: |\r?$)|^={7}\r?$", re.MULTILINE)
CONFLICT_ENDS = re.compile(rb"^(?:<{7}|>{7})(?: |\r?$)", re.MULTILINE)


@dataclass
class Handin:
    """What was handed in."""

    name: str  # of the upload
    sha256: str = ""  # of the upload's bytes; "" for a folder
    size_bytes: int = 0
    files: dict[str, bytes] = field(default_factory=dict)  # allowed names only, bytes as handed in
    manifest: dict[str, Any] | None = None  # None: absent or not to be read; the student's claims
    problems: list[str] = field(default_factory=list)  # for the student: what is wrong, what to do
    notes: list[str] = field(default_factory=list)  # for the staff

    @property
    def student(self) -> str:
        """Who made it, by its own account; "" when it does not say."""
        return shown(str((self.manifest or {}).get("student", "")))

    def for_running(self) -> dict[str, bytes]:
        """The files with LF line ends and without byte order marks, whatever they came with."""
        return {
            path: _plain(data) if PurePosixPath(path).suffix in TEXT_SUFFIXES else data
            for path, data in self.files.items()
        }


def limits_of(table: Assignment) -> Limits:
    """How far reading goes: generous beside what is kept, so that strays cost nothing but time."""
    rules = table.handin
    return Limits(
        archive_bytes=rules.max_total_bytes,
        unpacked_bytes=4 * rules.max_total_bytes,
        entries=4 * rules.max_entries,
    )


def allowed_bytes(table: Assignment, path: str) -> int | None:
    """The most bytes that a file called `path` may have; None for a name that is not allowed."""
    rules, name = table.handin, PurePosixPath(path)
    if path == MANIFEST:
        return MANIFEST_BYTES
    if path in table.files:
        return rules.max_source_bytes
    if str(name.parent) == rules.results and name.suffix in rules.results_suffixes:
        return rules.max_artifact_bytes
    # A package's __init__.py would hide the released files beside it.
    inside = str(name.parent) == rules.challenges and name.name != "__init__.py"
    return rules.max_source_bytes if inside and name.suffix in rules.challenges_suffixes else None


def shown(name: str) -> str:
    """A file's name, fit for a message: nothing invisible, not too long."""
    plain = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)
    return plain if len(plain) <= 120 else f"{plain[:80]}...{plain[-30:]}"


def listing(names: list[str]) -> str:
    """`a, b and 3 more`."""
    head = ", ".join(shown(name) for name in names[:SHOWN])
    return head if len(names) <= SHOWN else f"{head} and {len(names) - SHOWN} more"


def open_handin(path: Path | str, table: Assignment, limits: Limits | None = None) -> Handin:
    """Reads the upload at `path`: a tar.gz, a tar, a zip, or the folder one was unpacked into.

    A folder that holds an archive in place of the assignment's files, as Gradescope's does, stands
    for that archive.

    A hand-in of which nothing can be read has no files and one problem that says why. Raises
    OSError if the upload cannot be read from disk.
    """
    path = _upload_in(Path(path), table)
    handin = Handin(path.name)
    if path.is_file():
        with path.open("rb") as file:
            handin.sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        handin.size_bytes = path.stat().st_size
    found = _Found(table, handin)
    try:
        for member in members(path, limits or limits_of(table), handin.notes):
            found.take(member)
    except Unreadable as error:
        rest = f"{len(found.kept)} files of it were read. " if found.kept else ""
        handin.problems.append(f"{shown(path.name)}: {str(error).rstrip('.')}. {rest}{AGAIN}")
    found.settle()
    _read_manifest(handin, table)
    for name, data in handin.files.items():
        handin.problems += _faults_of_text(name, data)
    _say_what_is_missing(handin, table)
    return handin


def _upload_in(path: Path, table: Assignment) -> Path:
    if not path.is_dir() or any((path / name).exists() for name in table.files):
        return path
    archives = [p for p in path.iterdir() if p.name.endswith(ARCHIVES) and not _is_junk((p.name,))]
    return archives[0] if len(archives) == 1 and not archives[0].is_symlink() else path


def _fault_of_name(name: str) -> str:
    """Why a member of this name is refused; "" if it is not."""
    parts = name.split("/")
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    if any(unicodedata.category(c)[0] == "C" for c in name):
        return "its name holds control or invisible characters"
    if name.startswith("/") or re.match(r"[A-Za-z]:[/\\]", name):
        return "its name is an absolute path"
    if ".." in parts:
        return "its name leaves the hand-in's folder (`..`)"
    return "its name is too long" if len(name) > NAME_CHARS else ""


def _is_junk(parts: tuple[str, ...]) -> bool:
    """What operating systems, editors and Python leave behind, and nobody meant to hand in."""
    name = parts[-1]
    return (
        not JUNK_FOLDERS.isdisjoint(parts)
        or name in JUNK_FILES
        or name.startswith("._")
        or name.endswith(".pyc")
    )


class _Found:
    """Sorts the members of an upload into a hand-in's files, problems and notes."""

    def __init__(self, table: Assignment, handin: Handin):
        self.table, self.handin = table, handin
        self.kept: dict[tuple[str, str], bytes] = {}  # (folder around it, allowed name) -> bytes
        self.refused: dict[str, str] = {}
        self.strays: list[str] = []
        self.bytes = 0

    def take(self, member: Member) -> None:
        """Judges one member by its name, kind and size, and reads it if it may count."""
        fault = _fault_of_name(member.name)
        if fault:
            self.refused.setdefault(member.name, fault)
            return
        parts = tuple(p for p in member.name.split("/") if p not in ("", "."))
        path = "/".join(parts)
        if not parts or member.kind == "folder" or _is_junk(parts):
            return
        if member.kind != "file":
            self.refused.setdefault(path, f"it is a {member.kind}; hand in the file itself")
            return
        inside = self._inside(parts)
        if inside is None:
            self.strays.append(path)
            return
        most = allowed_bytes(self.table, inside[1]) or 0
        if member.size_bytes > most:
            self.refused[path] = (
                f"it has {member.size_bytes / 1e6:.1f} MB, and at most {most / 1e6:g} MB count"
            )
        elif self.bytes + member.size_bytes > self.table.handin.max_total_bytes:
            most = self.table.handin.max_total_bytes
            self.refused[path] = (
                f"the files before it have used up the {most / 1e6:g} MB that count"
            )
        elif inside not in self.kept and len(self.kept) >= self.table.handin.max_entries:
            most = self.table.handin.max_entries
            self.refused[path] = f"at most {most} files count"
        else:
            data = member.read()
            if self.kept.setdefault(inside, data) == data:
                self.bytes += len(data)
            else:
                self.refused[path] = "it is there more than once, with different contents"

    def _inside(self, parts: tuple[str, ...]) -> tuple[str, str] | None:
        """The allowed name that a path ends with, and the folders around it."""
        for at in range(len(parts)):
            name = "/".join(parts[at:])
            if allowed_bytes(self.table, name) is not None:
                return "/".join(parts[:at]), name
        return None

    def settle(self) -> None:
        """Fills in the hand-in's files, once every member has been seen."""
        handin = self.handin
        around = self._folder_around()
        elsewhere = []
        for (folder, name), data in self.kept.items():
            path = f"{folder}/{name}" if folder else name
            if folder != around:
                elsewhere.append(path)
            elif path not in self.refused:
                handin.files[name] = data
        by_folded = defaultdict(list)
        for name in handin.files:
            by_folded[unicodedata.normalize("NFC", name).casefold()].append(name)
        for names in by_folded.values():
            wanted = [n for n in names if n in self.table.files]
            for name in names if len(names) > 1 else ():
                if name not in wanted:
                    self.refused[name] = "other names differ from it in upper and lower case only"
                    del handin.files[name]
        if around:
            handin.notes.append(f"everything lay in a folder, {shown(around)}/, which was removed")
        if elsewhere and around is not None:
            handin.notes.append(f"ignored, not where they belong: {listing(elsewhere)}")
        if self.strays:
            handin.notes.append(f"ignored, not part of the hand-in: {listing(self.strays)}")
        self._say_what_was_refused()
        self._say_what_lies_elsewhere(elsewhere)

    def _folder_around(self) -> str | None:
        """The folder that is taken for the hand-in's top; None if there is more than one choice.

        A folder that holds one of the editable files goes before one that holds artifacts only, and
        a folder before those within it: an upload may be a whole clone, with copies further down.
        """
        all_folders = {folder for folder, name in self.kept if name != MANIFEST}
        with_source = {folder for folder, name in self.kept if name in self.table.files}
        choices = with_source or all_folders or {folder for folder, _ in self.kept}
        for folder in choices:
            if all(c == folder or c.startswith(f"{folder}/" if folder else "") for c in choices):
                return folder
        return None

    def _say_what_was_refused(self) -> None:
        for path, fault in list(self.refused.items())[:SHOWN]:
            self.handin.problems.append(f"{shown(path)} was left out: {fault}.")
        if len(self.refused) > SHOWN:
            rest = len(self.refused) - SHOWN
            self.handin.problems.append(f"{rest} more files were left out. {AGAIN}")

    def _say_what_lies_elsewhere(self, elsewhere: list[str]) -> None:
        if elsewhere and not self.handin.files:
            self.handin.problems.append(
                "The assignment's files lie in more than one folder, so none could be chosen: "
                f"{listing(elsewhere)}. {AGAIN}"
            )
        wanted = {PurePosixPath(f).name.casefold(): f for f in self.table.files}
        misplaced = [(s, wanted.get(PurePosixPath(s).name.casefold())) for s in self.strays]
        if self.handin.files:
            misplaced += [(path, self._inside(tuple(path.split("/")))[1]) for path in elsewhere]
        for path, belongs in misplaced:
            if belongs and belongs not in self.handin.files and belongs != MANIFEST:
                self.handin.problems.append(
                    f"{shown(path)} was found, but is looked for as {shown(belongs)} (upper and "
                    f"lower case matter), so it was ignored. {AGAIN}"
                )


def _plain(data: bytes) -> bytes:
    return data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _encoding(name: str, data: bytes) -> str:
    """UTF-8, or what a Python file declares. Raises SyntaxError for an unknown encoding."""
    lines = iter(data.splitlines(keepends=True)[:2])
    if name.endswith(".py"):
        return tokenize.detect_encoding(lambda: next(lines, b""))[0]
    return "utf-8-sig"


def _faults_of_text(name: str, data: bytes) -> list[str]:
    """What makes a text file impossible to read, with the line it stands in."""
    if PurePosixPath(name).suffix not in TEXT_SUFFIXES or name == MANIFEST:
        return []
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return [f"{name} is saved as UTF-16. Save it as UTF-8 in your editor and hand in again."]
    faults = []
    if (at := data.find(b"\0")) >= 0:
        line = _plain(data[:at]).count(b"\n") + 1
        faults.append(f"{name}, line {line}: holds a NUL byte, so the file is damaged. {AGAIN}")
    try:
        data.decode(_encoding(name, data))
    except UnicodeDecodeError as error:
        line = _plain(data[: error.start]).count(b"\n") + 1
        faults.append(f"{name}, line {line}: not UTF-8. Save the file as UTF-8 and hand in again.")
    except (SyntaxError, LookupError):
        faults.append(f"{name}, line 1: not UTF-8. Save the file as UTF-8 and hand in again.")
    # Prose may underline a heading with seven equals signs, so there a marker has to be a pair's.
    marker = (CONFLICT if name.endswith(".csv") else CONFLICT_ENDS).search(data)
    if marker and not name.endswith((".md", ".json")):
        line = _plain(data[: marker.start()]).count(b"\n") + 1
        faults.append(f"{name}, line {line}: a merge conflict was left in. Resolve it (git diff).")
    return faults


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _read_manifest(handin: Handin, table: Assignment) -> None:
    data = handin.files.pop(MANIFEST, None)
    if data is None:
        handin.notes.append("no manifest: this hand-in was not written by `make handin`")
        return
    try:
        manifest = json.loads(data, parse_constant=_no_constant)
        listed = {f["path"]: f["sha256"] for f in manifest["files"]}
    except (ValueError, RecursionError, TypeError, KeyError) as error:
        handin.notes.append(
            f"the manifest cannot be read ({type(error).__name__}): {shown(str(error))}"
        )
        return
    handin.manifest = manifest
    if manifest.get("assignment") != table.name:
        named = shown(str(manifest.get("assignment")))
        handin.problems.append(
            f"This is a hand-in of assignment {named}, and {table.name} is being graded. {AGAIN}"
        )
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in handin.files.items()}
    for what, names in (
        ("changed after packing", [n for n in hashes if n in listed and listed[n] != hashes[n]]),
        ("added after packing", [n for n in hashes if n not in listed]),
        ("removed after packing", [n for n in listed if n not in hashes]),
    ):
        if names:
            handin.notes.append(f"{what}, by the manifest: {listing(sorted(map(str, names)))}")
    if manifest.get("release") != table.release:
        handin.notes.append(
            f"packed with release {shown(str(manifest.get('release')))}; this is {table.release}"
        )


def _say_what_is_missing(handin: Handin, table: Assignment) -> None:
    missing = [name for name in table.files if name not in handin.files]
    if not handin.files:
        if not handin.problems:
            handin.problems.append(f"The hand-in holds none of the assignment's files. {AGAIN}")
    elif missing:
        handin.problems.append(
            f"Not in the hand-in: {listing(missing)}. What they hold scores nothing. {AGAIN}"
        )
