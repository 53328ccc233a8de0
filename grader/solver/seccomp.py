"""A seccomp filter: system calls that no probe needs, and that reach out of its process, fail.

It covers what Landlock leaves open (UDP, Unix sockets, chmod, shared memory that outlives its
maker) and stands in for it on older kernels (signals, tracing). Each call fails with an error that
the caller sees; nothing is killed. Source: the kernel's userspace-api/seccomp_filter.rst and
classic BPF; a filter is inherited and cannot be taken off.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

_PR_SET_SECCOMP, _MODE_FILTER, _PR_SET_NO_NEW_PRIVS = 22, 2, 38
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # classic BPF
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NR, _ARCH, _ARGS = 0, 4, 16  # offsets in struct seccomp_data
_X32 = 0x40000000  # x86-64's second table of system calls

# Audit's word for the architecture, and which column of the table below is its own.
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

_ABSENT = -1
_REFUSED = {  # by name: the number on x86-64 and on aarch64
    # another process
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "tkill": (200, 130),
    # the network, and every Unix socket with a name (a socketpair has none)
    "socket": (41, 198),
    "io_uring_setup": (425, 425),  # opens sockets without the call above
    # what outlives the process without being a file
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # whose a file is, and what may be done with it: the same account may own files of ours
    "chmod": (90, _ABSENT),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, _ABSENT),
    "fchown": (93, 55),
    "lchown": (94, _ABSENT),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "truncate": (76, 45),
    "utime": (132, _ABSENT),
    "utimes": (235, _ABSENT),
    "futimesat": (261, _ABSENT),
    "utimensat": (280, 88),
    "open_by_handle_at": (304, 265),
    # namespaces, mounts, and the parts of the kernel that most escapes have used
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
}
_MEMORY_FILES = {"memfd_create": (319, 279), "memfd_secret": (447, 447)}  # in nobody's sum
_ONLY_ON_ITSELF = {  # (numbers, which argument is the process): 0 and our own are let through
    "kill": ((62, 129), 0),
    "tgkill": ((234, 131), 0),
    "rt_sigqueueinfo": ((129, 138), 0),
    "rt_tgsigqueueinfo": ((297, 240), 0),
    "prlimit64": ((302, 261), 0),
    "setpriority": ((141, 140), 1),
    "sched_setparam": ((142, 118), 0),
    "sched_setscheduler": ((144, 119), 0),
    "sched_setattr": ((314, 274), 0),
}
_REFUSED_COMMANDS = {  # a signal sent by a file, and typing into a terminal
    "fcntl": ((72, 25), (8, 10, 15)),  # F_SETOWN, F_SETSIG, F_SETOWN_EX
    "ioctl": ((16, 29), (0x8901, 0x8902, 0x5412)),  # FIOSETOWN, SIOCSPGRP, TIOCSTI
}
_CLONE, _CLONE3 = (56, 220), (435, 435)
_CLONE_OUTWARD = 0x7E028000  # CLONE_NEW*, and CLONE_PARENT, which makes a sibling


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def available() -> bool:
    """Whether this machine's architecture is known here and its kernel takes filters."""
    if platform.machine() not in _ARCHITECTURES:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    # With no program to read the kernel says EFAULT; without filters EINVAL.
    libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, None, 0, 0)
    return ctypes.get_errno() == errno.EFAULT


def restrict(memory_files: bool = False) -> None:
    """Puts up the filter, for good. Raises OSError when the kernel refuses.

    memory_files: whether memfd_create stays allowed, as NVIDIA's driver may want.
    """
    program = _program(memory_files)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    described = _Program(len(program) // 8, program)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(described), 0, 0):
        error = ctypes.get_errno()
        raise OSError(error, f"seccomp: {os.strerror(error)}")


def _program(memory_files: bool) -> bytes:
    architecture, column = _ARCHITECTURES[platform.machine()]
    refuse = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
    absent = (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)
    allow = (_RETURN, 0, 0, _ALLOW)
    code = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, architecture), refuse, (_LOAD, 0, 0, _NR)]
    if column == 0:
        code += [(_AT_LEAST, 0, 1, _X32), absent]

    def block(numbers: tuple[int, int], *then: tuple[int, int, int, int]) -> None:
        """`then`, all of whose ways return, for this system call."""
        if numbers[column] != _ABSENT:
            code.extend([(_EQUAL, 0, len(then), numbers[column]), *then])

    for numbers in (_REFUSED | ({} if memory_files else _MEMORY_FILES)).values():
        block(numbers, refuse)
    for numbers, which in _ONLY_ON_ITSELF.values():
        own = [(_EQUAL, 2, 0, 0), (_EQUAL, 1, 0, os.getpid()), refuse, allow]
        block(numbers, (_LOAD, 0, 0, _ARGS + 8 * which), *own)
    for numbers, commands in _REFUSED_COMMANDS.values():
        left = len(commands)
        compared = [(_EQUAL, left - i, 0, command) for i, command in enumerate(commands)]
        block(numbers, (_LOAD, 0, 0, _ARGS + 8), *compared, allow, refuse)
    block(_CLONE, (_LOAD, 0, 0, _ARGS), (_ANY_BIT, 0, 1, _CLONE_OUTWARD), refuse, allow)
    block(_CLONE3, absent)  # its flags cannot be read here; the C library then takes clone
    code.append(allow)
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
