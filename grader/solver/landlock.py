"""Landlock: this process gives up every file but those on a list, for good and for its children.

Source: the kernel's Documentation/userspace-api/landlock.rst. What a kernel offers goes by its
ABI: 1 files; 2 renames between folders; 3 truncation; 4 TCP; 5 ioctl on devices; 6 signals and
abstract Unix sockets to processes outside. A restricted process also cannot trace one outside.
No rule of any ABI covers chmod, chown, stat, UDP, or Unix sockets that have a path.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_VERSION, _PATH_BENEATH = 1, 1
_PR_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV  # the rest is of folders
_HANDLED_FS = {1: _REFER - 1, 2: 2 * _REFER - 1, 3: 2 * _TRUNCATE - 1, 5: 2 * _IOCTL_DEV - 1}
_HANDLED_NET = {4: 0b11}  # bind and connect, TCP
_SCOPED = {6: 0b11}  # abstract Unix sockets, signals

_READ = _EXECUTE | _READ_FILE | _READ_DIR
_DEVICE = _READ_FILE | _WRITE_FILE | _IOCTL_DEV
_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def abi() -> int:
    """What this kernel offers: 1, 2, ...; 0 where there is no Landlock, or none for us."""
    return max(0, _libc.syscall(_CREATE_RULESET, None, 0, _VERSION))


def restrict(readable: list[str], writable: list[str], devices: list[str] = ()) -> None:
    """From here on only these files and folders can be opened; no TCP, no signal to outside.

    A path that does not exist is left out. `writable` folders hold anything but devices. Raises
    OSError when the kernel refuses: nothing is restricted then.
    """
    offered = abi()
    fs = _offered(_HANDLED_FS, offered)
    ruleset = _Ruleset(fs, _offered(_HANDLED_NET, offered), _offered(_SCOPED, offered))
    size = 8 if offered < 4 else 16 if offered < 6 else 24  # an older kernel knows fewer fields
    ruleset_fd = _call(_CREATE_RULESET, ctypes.byref(ruleset), size, 0)
    try:
        for paths, rights in (
            (readable, _READ),
            (writable, fs & ~(_EXECUTE | _MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV)),
            (devices, _DEVICE),
        ):
            for path in paths:
                with contextlib.suppress(FileNotFoundError):
                    _allow(ruleset_fd, path, rights & fs)
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _call(_RESTRICT_SELF, ruleset_fd, 0)
    finally:
        os.close(ruleset_fd)


def _offered(by_abi: dict[int, int], offered: int) -> int:
    return next((rights for at, rights in reversed(by_abi.items()) if at <= offered), 0)


def _allow(ruleset_fd: int, path: str, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _OF_FILES
        rule = _PathBeneath(rights, fd)
        _call(_ADD_RULE, ruleset_fd, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(fd)


def _call(number: int, *args) -> int:
    result = _libc.syscall(number, *args)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock (system call {number}): {os.strerror(error)}")
    return result
