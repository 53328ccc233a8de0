#!/usr/bin/env python3
"""Hands in your work: packs it into one archive, checks the archive, and says what is missing.

    python handin.py --output OUT_DIR

writes OUT_DIR/TIMESTAMP.tar.gz (the time in UTC). Only the files that are graded go into it: the
editable files, the experiments' results and your challenges. It never refuses because something is
missing, and it changes none of your files. Needs nothing but Python 3.9 or newer.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import getpass
import gzip
import hashlib
import io
import json
import os
import platform
import signal
import stat
import sys
import tarfile
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from shared.completeness import a_few, remarks

FACTS = "shared/assignment.json"
MANIFEST = "manifest.json"
EXIT_OK, EXIT_NOT_WRITTEN, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130  # 2 is argparse's
PART_OF = ".handin-{}.part"  # what is being written; whoever collects hand-ins looks at *.tar.gz
STALE_S = 3600
JUNK = ("__pycache__", "__MACOSX", "__init__.py")
NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK}


class NotHandedIn(Exception):
    """Nothing was written. The message says why and what to do, in one line."""


@dataclass
class Work:
    """What goes into the archive, and what does not."""

    facts: dict
    inside: list[Path]  # folders that a file must really lie in
    files: dict[str, bytes] = field(default_factory=dict)
    left_out: list[tuple[str, str]] = field(default_factory=list)  # (name, why)
    ignored: list[str] = field(default_factory=list)  # of other kinds; mentioned by --dry-run


def size(n_bytes: int) -> str:
    """Bytes as people say them: `4.9 MB`."""
    for unit, bytes_per in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= bytes_per:
            return f"{n_bytes / bytes_per:.1f} {unit}"
    return f"{n_bytes} bytes"


# ---- Collecting ---------------------------------------------------------------------------------


def collect(facts: dict, folders: list[Path], results: Path) -> Work:
    """Reads everything that may be handed in.

    folders: where the editable files and the challenges are looked for, the first first.
    results: the folder with the experiments' results. It may be a link: many keep it on scratch.
    """
    work = Work(facts, [folder.resolve() for folder in (*folders, results)])
    limit = facts["max_source_bytes"]
    for name in facts["files"]:
        path = next((f / name for f in folders if os.path.lexists(f / name)), None)
        if path:
            _take(work, name, path, limit)
    seen = set()
    places = [(f / facts["challenges"], "challenges", limit) for f in folders]
    places.append((results, "results", facts["max_artifact_bytes"]))
    for folder, kind, most in places:
        for path in _entries(work, folder):
            name = f"{facts[kind]}/{path.name}"
            if name in seen or path.name.startswith(".") or path.name in JUNK:
                continue
            seen.add(name)
            if path.suffix not in facts[kind + "_suffixes"]:
                work.ignored.append(name)
            elif not path.name.isprintable():  # includes bytes that are not UTF-8
                work.left_out.append((ascii(name), "its name has unusual characters: rename it"))
            else:
                _take(work, name, path, most)
    return work


def _entries(work: Work, folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        work.left_out.append((str(folder), f"cannot be listed ({error.strerror}): chmod u+rx it"))
        return []


def _take(work: Work, name: str, path: Path, most: int) -> None:
    """Reads one file into `work`, or says there why not."""

    def leave_out(why: str) -> None:
        work.left_out.append((name, why))

    try:
        real, status = path.resolve(), path.stat()
        if not any(folder == real or folder in real.parents for folder in work.inside):
            leave_out(f"is a link to {real}, outside your clone: put the file itself here")
        elif not stat.S_ISREG(status.st_mode):
            leave_out("is not a file")
        elif status.st_size > most:
            leave_out(f"has {size(status.st_size)}; a file of its kind may have {size(most)}")
        elif sum(map(len, work.files.values())) + status.st_size > work.facts["max_total_bytes"]:
            leave_out(f"has {size(status.st_size)}; all together would exceed the limit")
        elif len(work.files) + 1 >= work.facts["max_entries"]:  # the manifest is one
            leave_out(f"is one too many: {work.facts['max_entries']} files are the most")
        else:
            with path.open("rb") as file:
                work.files[name] = file.read(most)
    except OSError as error:
        what = "is a link to nothing" if path.is_symlink() else f"cannot be read ({error.strerror})"
        leave_out(f"{what}: check it with `ls -l {path}`")
    except RuntimeError:  # Python before 3.13: a link that leads to itself
        leave_out("is a link that leads to itself")


# ---- Packing ------------------------------------------------------------------------------------


def manifest_of(facts: dict, work: Work, student: str, incomplete: list[str]) -> dict:
    """What the archive says about itself; the hashes are of the bytes that are packed."""
    return {
        "format": 1,
        "course": facts["course"],
        "assignment": facts["name"],
        "release": facts["release"],
        "student": student,
        "packed_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),  # noqa: UP017
        "python": platform.python_version(),
        "files": [
            {"path": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in sorted(work.files.items())
        ],
        "left_out": [{"path": name, "why": why} for name, why in work.left_out],
        "incomplete": incomplete,
    }


def _write(file: io.BufferedWriter, files: dict[str, bytes], now_s: int) -> None:
    """A .tar.gz of `files`, the same bytes for the same files and time."""
    packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=now_s, compresslevel=6)
    with packed, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(data), now_s, 0o644
            archive.addfile(entry, io.BytesIO(data))


def check_archive(path: Path, files: dict[str, bytes]) -> None:
    """Opens the archive again. Raises NotHandedIn unless it holds exactly `files`."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            read = {m.name: archive.extractfile(m).read() for m in archive if m.isreg()}
    except (OSError, EOFError, tarfile.TarError, ValueError) as error:
        raise NotHandedIn(f"the archive could not be read back ({error}); run it again") from None
    if read != files:
        wrong = [n for n in sorted({*read, *files}) if read.get(n) != files.get(n)]
        raise NotHandedIn(f"the archive differs from your files in {a_few(wrong)}; run it again")


def hand_in(out: Path, work: Work, manifest: dict) -> Path:
    """Writes the archive under its final name, whole or not at all, and returns its path.

    Raises NotHandedIn; then nothing is left behind.
    """
    text = json.dumps(manifest, indent=1).encode() + b"\n"
    files = {MANIFEST: text, **dict(sorted(work.files.items()))}
    part = out / PART_OF.format(os.urandom(4).hex())
    try:
        out.mkdir(parents=True, exist_ok=True)
        _remove_stale_parts(out)
        try:
            with part.open("wb") as file:  # mode by the umask: the staff may have to read it
                _write(file, files, int(time.time()))
                file.flush()
                os.fsync(file.fileno())
            check_archive(part, files)
            return _publish(part, out)
        finally:
            with contextlib.suppress(OSError):
                part.unlink()
    except OSError as error:
        raise NotHandedIn(_remedy(out, error)) from None


def _publish(part: Path, out: Path) -> Path:
    """Gives the finished archive its name. A name that is taken is never overwritten."""
    for _ in range(5):
        final = out / time.strftime("%Y%m%d-%H%M%S.tar.gz", time.gmtime())
        try:
            os.link(part, final)
        except FileExistsError:  # handed in within the same second; names have to sort by time
            time.sleep(1.0)
            continue
        except OSError as error:
            if error.errno not in NO_HARD_LINKS or final.exists():
                raise
            part.rename(final)
        with contextlib.suppress(OSError):  # not every file system can do this to a folder
            handle = os.open(out, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        return final
    raise NotHandedIn(f"other hand-ins keep taking the name {final}; run it again")


def _remove_stale_parts(out: Path) -> None:
    """What a run that was killed outright has left."""
    for part in out.glob(PART_OF.format("*")):
        with contextlib.suppress(OSError):
            if time.time() - part.stat().st_mtime > STALE_S:
                part.unlink()


def _remedy(out: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space is left for {out}: delete what you do not need, then run it again"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"you may not write to {out}: give another folder with --output, or tell the staff"
    return f"{out} cannot be written ({error.strerror or error}): run it again, or tell the staff"


# ---- Command line -------------------------------------------------------------------------------


def read_facts(path: Path) -> dict:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotHandedIn(f"{path} is missing: run this in your clone, or give --root") from None
    except (OSError, ValueError) as error:
        raise NotHandedIn(
            f"{path} cannot be read ({error}): run `git checkout -- {FACTS}`"
        ) from None


def student_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"


def arguments(argv: list[str] | None) -> argparse.Namespace:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, metavar="OUT_DIR", help="where the archive is put")
    parser.add_argument("--root", type=Path, default=here, help="the clone (default: this one)")
    parser.add_argument(
        "--overlay", default=".", help="folders under the root to take the files from, as a:b:."
    )
    parser.add_argument("--results", type=Path, help="the experiments' results, if not as usual")
    parser.add_argument("--student", default="", help="your login name (default: who runs this)")
    parser.add_argument("--dry-run", action="store_true", help="list what would be handed in")
    return parser.parse_args(argv)


def run(options: argparse.Namespace) -> None:
    facts = read_facts(options.root / FACTS)
    folders = [options.root / folder for folder in options.overlay.split(":") if folder]
    out = options.output or options.root / "handin" / facts["name"]
    work = collect(facts, folders, options.results or options.root / facts["results"])
    if not work.files:
        raise NotHandedIn(f"{options.root} holds none of the files: run this in your clone")
    incomplete = remarks(facts, work.files, dict(work.left_out))
    path = None
    if not options.dry_run:  # first of all: what is printed may go to a pipe that closes
        student = options.student or student_name()
        path = hand_in(out, work, manifest_of(facts, work, student, incomplete))
    else:
        for name, data in work.files.items():
            print(f"{size(len(data)):>12}  {name}")
        if work.ignored:
            print(f"Not part of a hand-in: {', '.join(map(ascii, work.ignored))}")
    for heading, lines in (
        ("Left out:", [f"{name} {why}" for name, why in work.left_out]),
        ("Not complete yet (you can hand in again, as often as you like):", incomplete),
    ):
        if lines:
            print(heading, *(f"  - {line}" for line in lines), sep="\n")
    if path is None:
        print(f"{len(work.files)} files would go to {out}; nothing was written.")
        return
    print(f"Handed in {len(work.files)} files ({path.stat().st_size / 1e6:.1f} MB) as {path}")
    print("You can hand in again at any time; what you handed in last before the deadline counts.")


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    for stream in (sys.stdout, sys.stderr):  # a login shell may have no UTF-8 locale
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")
    try:
        run(options)
        sys.stdout.flush()
    except NotHandedIn as error:
        print(f"Not handed in: {error}. Your files are as they were.", file=sys.stderr)
        return EXIT_NOT_WRITTEN
    except KeyboardInterrupt:
        print("Interrupted before it was done. Run it again.", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # whoever read our words has stopped; the work is done
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_OK


def _interrupt(signum, frame):
    raise KeyboardInterrupt


if __name__ == "__main__":
    for name in ("SIGTERM", "SIGHUP"):  # the default would skip the tidying up
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _interrupt)
    sys.exit(main())
