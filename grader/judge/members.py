"""The members of an uploaded archive, one after the other, without writing any of them to disk.

An archive is read from front to back, so memory stays flat whatever it unpacks to, and every
amount that an archive may claim (members, headers, bytes) has a cap. `tarfile` itself reads a
header of a gigabyte into memory, stops in silence at a damaged one, and loops on a negative size;
so only its header parser is used here. Nothing in this module judges names: see `intake`.
"""

from __future__ import annotations

import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

BLOCK = tarfile.BLOCKSIZE
CHUNK_BYTES = 1 << 16
GZIP_PARTS = 100  # one archive compressed in pieces has a few; a flood of empty ones is an attack

TAR_KINDS = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.CONTTYPE: "file",
    tarfile.DIRTYPE: "folder",
    tarfile.SYMTYPE: "symbolic link",
    tarfile.LNKTYPE: "hard link",
    tarfile.CHRTYPE: "device",
    tarfile.BLKTYPE: "device",
    tarfile.FIFOTYPE: "named pipe",
    tarfile.GNUTYPE_SPARSE: "sparse file",
}
ZIP_FAULTS = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError)
WITHOUT_DATA = {"folder", "symbolic link", "hard link", "device", "named pipe"}
LONG_NAME, LONG_LINK = tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK
EXTENDED = {tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE, LONG_NAME, LONG_LINK}
MAGIC = (  # what people upload by mistake, so that the message can name it
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"Rar!", "a rar archive"),
    (b"%PDF", "a PDF document"),
    (b"<!DOCTYPE", "a web page"),
    (b"<html", "a web page"),
)


@dataclass(frozen=True)
class Limits:
    """What an archive may claim before reading it stops."""

    archive_bytes: int  # the uploaded file itself
    unpacked_bytes: int  # everything that it unpacks to, kept or not
    entries: int  # members, with their headers
    header_bytes: int = 1 << 16  # one member's extended header


class Unreadable(Exception):
    """The archive cannot be read, or not any further. The message is for the student."""


@dataclass
class Member:
    """One entry of an archive. `read` is good until the next entry is asked for."""

    name: str  # as stored; bytes that are not UTF-8 as surrogate escapes
    kind: str  # "file", "folder", or what it is instead
    size_bytes: int  # as claimed; `read` checks it
    read: Callable[[], bytes] = field(repr=False)


class _Inflated:
    """The bytes of a file, decompressed as they are read, up to a cap."""

    def __init__(self, file: BinaryIO, gzipped: bool, limit_bytes: int, notes: list[str]):
        self._file, self._limit, self._notes = file, limit_bytes, notes
        self._inflate = zlib.decompressobj(wbits=31) if gzipped else None
        self._parts, self._read_bytes, self._rest = 1, 0, b""
        self._buffer, self._ended = bytearray(), False

    def read(self, size: int) -> bytes:
        """`size` bytes, fewer only at the end. Raises Unreadable."""
        while len(self._buffer) < size and (chunk := self._chunk()):
            self._read_bytes += len(chunk)
            if self._read_bytes > self._limit:
                raise Unreadable(
                    f"it unpacks to more than {self._limit / 1e6:.0f} MB; reading stopped there. "
                    "Leave out recordings and other large files: `make handin` does"
                )
            self._buffer += chunk
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def exactly(self, size: int) -> bytes:
        data = self.read(size)
        if len(data) < size:
            raise Unreadable("it ends in the middle of a file: the upload was cut short")
        return data

    def skip(self, size: int) -> None:
        while size > 0:
            size -= len(self.exactly(min(size, CHUNK_BYTES)))

    def _chunk(self) -> bytes:
        if self._inflate is None:
            return self._file.read(CHUNK_BYTES)
        while not self._ended:
            data = self._rest or self._file.read(CHUNK_BYTES)
            if self._inflate.eof:
                self._next_part(data)
                continue
            if not data:
                raise Unreadable("its compressed data ends early: the upload was cut short")
            try:
                chunk = self._inflate.decompress(data, CHUNK_BYTES)
            except zlib.error as error:
                raise Unreadable(f"its compressed data is damaged ({error})") from None
            self._rest = self._inflate.unconsumed_tail or self._inflate.unused_data
            if chunk:
                return chunk
        return b""

    def _next_part(self, data: bytes) -> None:
        """Goes on to the next gzip part, if what follows the last one is a gzip part."""
        if data == b"\x1f":
            data += self._file.read(CHUNK_BYTES)
        if not data.startswith(b"\x1f\x8b"):
            if data.strip(b"\0"):
                self._notes.append("bytes after the end of the gzip data were ignored")
            self._ended = True
            return
        self._parts += 1
        if self._parts > GZIP_PARTS:
            raise Unreadable(f"it consists of more than {GZIP_PARTS} gzip parts")
        if self._parts == 2:
            self._notes.append("the gzip data has more than one part")
        self._rest, self._inflate = data, zlib.decompressobj(wbits=31)


def _records(payload: bytes) -> dict[bytes, bytes]:
    """The records `LENGTH KEY=VALUE\\n` of a pax header."""
    records, at = {}, 0
    while at < len(payload) and payload[at]:
        length, space, _ = payload[at : at + 12].partition(b" ")
        if not (space and length.isdigit() and int(length) > len(length) + 1):
            raise Unreadable("an extended header in it is damaged")
        record = payload[at + len(length) + 1 : at + int(length)]
        key, equals, value = record[:-1].partition(b"=")
        if not (equals and record.endswith(b"\n") and at + int(length) <= len(payload)):
            raise Unreadable("an extended header in it is damaged")
        records[key] = value
        at += int(length)
    return records


def _tar_members(stream: _Inflated, limits: Limits, notes: list[str]) -> Iterator[Member]:
    extended: dict[bytes, bytes] = {}
    for _ in range(3 * limits.entries + 2):  # a member has up to three headers
        block = stream.read(BLOCK)
        if not block.strip(b"\0"):
            break
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError):
            raise Unreadable("a header in it is damaged; what follows cannot be read") from None
        size_bytes = header.size
        if header.type in EXTENDED:
            if not 0 <= size_bytes <= limits.header_bytes:  # before it is read
                raise Unreadable(
                    f"it claims a header of {size_bytes} bytes; {limits.header_bytes} are allowed"
                )
            payload = stream.exactly(size_bytes)
            stream.skip(-size_bytes % BLOCK)
            if header.type == LONG_NAME:
                extended[b"path"] = payload.split(b"\0")[0]
            elif header.type == tarfile.XGLTYPE:
                if _records(payload).keys() - {b"comment"}:  # `git archive` writes a comment
                    notes.append("a header for the whole archive was ignored")
            elif header.type != LONG_LINK:
                extended |= _records(payload)
            continue
        yield from _tar_member(stream, block, header, extended)
        extended = {}
    else:
        raise Unreadable(f"it has more than {limits.entries} entries; reading stopped there")
    behind = 0
    while chunk := stream.read(CHUNK_BYTES):
        behind += len(chunk.strip(b"\0"))
    if behind:
        notes.append(f"{behind} bytes after the end of the archive were ignored")


def _tar_member(
    stream: _Inflated, block: bytes, header: tarfile.TarInfo, extended: dict[bytes, bytes]
) -> Iterator[Member]:
    kind = TAR_KINDS.get(header.type, "entry of an unknown type")
    size_bytes, name = header.size, header.name
    if b"size" in extended:
        if not extended[b"size"].isdigit() or len(extended[b"size"]) > 15:
            raise Unreadable("an extended header in it is damaged")
        size_bytes = int(extended[b"size"])
    if b"path" in extended:
        name = extended[b"path"].decode("utf-8", "surrogateescape")
    if any(key.startswith(b"GNU.sparse.") for key in extended):
        kind = "sparse file"
        name = extended.get(b"GNU.sparse.name", name.encode("utf-8", "surrogateescape")).decode(
            "utf-8", "surrogateescape"
        )
    if size_bytes < 0:
        raise Unreadable("a header in it claims a negative size")
    if kind in WITHOUT_DATA:
        size_bytes = 0
    if header.type == tarfile.GNUTYPE_SPARSE:  # the rest of its map stands before the data
        more = block[482]
        while more:
            more = stream.exactly(BLOCK)[504]
    left = [size_bytes]

    def read() -> bytes:
        left[0] = 0
        return stream.exactly(size_bytes)

    yield Member(name, kind, size_bytes, read)
    stream.skip(left[0])
    stream.skip(-size_bytes % BLOCK)


def _zip_members(file: BinaryIO, limits: Limits) -> Iterator[Member]:
    # zipfile keeps the whole directory in memory, so its size is looked at first.
    file.seek(0, os.SEEK_END)
    length = file.tell()
    file.seek(max(0, length - 22 - (1 << 16)))
    tail = file.read()
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) - at < 22:
        raise Unreadable("its directory, at the end, is missing: the upload was cut short")
    (directory_bytes,) = struct.unpack_from("<L", tail, at + 12)
    if tail[max(0, at - 20) : at].startswith(b"PK\6\7") or directory_bytes > 512 * limits.entries:
        raise Unreadable(f"it has more than {limits.entries} entries")
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error) as error:
        raise Unreadable(f"its directory is damaged ({error})") from None
    unpacked_bytes = 0
    for number, info in enumerate(archive.infolist()):
        if number >= limits.entries:
            raise Unreadable(f"it has more than {limits.entries} entries; reading stopped there")
        mode = info.external_attr >> 16
        kind = "folder" if info.is_dir() else _kind_of_mode(mode) if stat.S_IFMT(mode) else "file"
        if kind == "file" and info.flag_bits & 1:
            kind = "encrypted file"
        if kind == "file" and info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            kind = "file compressed in an unusual way"

        def read(info: zipfile.ZipInfo = info) -> bytes:
            nonlocal unpacked_bytes
            try:
                with archive.open(info) as member:
                    data = member.read(info.file_size + 1)
            except (
                zipfile.BadZipFile,
                zlib.error,
                EOFError,
                OSError,
                ValueError,
                RuntimeError,
            ) as error:
                raise Unreadable(f"a file in it is damaged ({error})") from None
            if len(data) != info.file_size:
                raise Unreadable("a file in it is not of the size that it claims")
            unpacked_bytes += len(data)
            if unpacked_bytes > limits.unpacked_bytes:
                raise Unreadable(f"it unpacks to more than {limits.unpacked_bytes / 1e6:.0f} MB")
            return data

        # Some programs for Windows write backslashes; the format demands slashes.
        yield Member(info.orig_filename.replace("\\", "/"), kind, info.file_size, read)


def _kind_of_mode(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    if stat.S_ISLNK(mode):
        return "symbolic link"
    return "named pipe" if stat.S_ISFIFO(mode) else "device"


def _folder_members(folder: Path, limits: Limits) -> Iterator[Member]:
    """The files under `folder`: Gradescope unpacks some uploads itself."""
    entries = 0
    for parent, folders, names in os.walk(folder):  # follows no links
        folders.sort()
        for name in [f for f in folders if (Path(parent) / f).is_symlink()] + sorted(names):
            entries += 1
            if entries > limits.entries:
                raise Unreadable(f"it has more than {limits.entries} entries")
            path = Path(parent) / name
            status = path.lstat()

            def read(path: Path = path, size_bytes: int = status.st_size) -> bytes:
                handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                with open(handle, "rb") as file:
                    return file.read(size_bytes)

            stored = path.relative_to(folder).as_posix()
            yield Member(stored, _kind_of_mode(status.st_mode), status.st_size, read)


def members(path: Path, limits: Limits, notes: list[str]) -> Iterator[Member]:
    """The entries of a tar.gz, tar or zip archive, or of a folder, in stored order.

    What the staff should know goes to `notes`. Raises Unreadable, at the latest when the last entry
    has been read, and OSError when the file itself cannot be read.
    """
    if path.is_dir():
        yield from _folder_members(path, limits)
        return
    size_bytes = path.stat().st_size
    if size_bytes == 0:
        raise Unreadable("the file is empty (0 bytes): the upload failed, or the disk was full")
    if size_bytes > limits.archive_bytes:
        raise Unreadable(
            f"the file has {size_bytes / 1e6:.0f} MB; at most {limits.archive_bytes / 1e6:.0f} MB "
            "are accepted. Leave out recordings and other large files: `make handin` does"
        )
    with path.open("rb") as file:
        start = file.read(BLOCK)
        file.seek(0)
        if start.startswith(b"PK"):
            notes.append("the upload is a zip archive, not one that `make handin` wrote")
            yield from _zip_members(file, limits)
            return
        gzipped = start.startswith(b"\x1f\x8b")
        if not gzipped and start[257:262] != b"ustar":
            found = next(
                (name for magic, name in MAGIC if start.startswith(magic)), "something else"
            )
            raise Unreadable(f"it is no .tar.gz archive but {found}")
        if not gzipped:
            notes.append("the upload is not compressed, so not one that `make handin` wrote")
        stream = _Inflated(file, gzipped, limits.unpacked_bytes, notes)
        yield from _tar_members(stream, limits, notes)
