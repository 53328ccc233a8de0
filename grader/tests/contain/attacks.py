"""What a hostile hand-in tries from inside its process; each returns only if it succeeded.

Run by `stand_in`, under a Python without any packages. `facts` says what there is to attack.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path

CANARY = "canary-8d1f"
MANY = 100  # processes or files: above the caps that the test sets
libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Facts:
    """The world around the attacker. Everything belongs to the account that runs the judge."""

    secret: str  # a file with the canary; nobody but its owner may read it
    repository: str  # a folder that everybody may read
    plain: str  # a file in it, with the canary
    unix: str  # a Unix socket that listens
    abstract: str  # the same, with an abstract name
    tcp: int  # a port of the loopback that listens
    udp: int
    shared: str  # a path in a folder where everybody may write; there is no such file
    judge: int  # pid of a process that must not come to harm
    temp: str  # the private folder
    zygote: int = 0


def read_a_staff_file(facts):
    assert Path(facts.secret).read_text() == CANARY


def list_the_repository(facts):
    os.listdir(facts.repository)


def read_the_repository(facts):
    assert Path(facts.plain).read_text() == CANARY


def write_into_the_repository(facts):
    open(f"{facts.repository}/planted", "w").close()
    os.unlink(f"{facts.repository}/planted")


def write_where_everybody_may(facts):
    open(facts.shared, "w").close()


def truncate_a_file(facts):
    size = os.path.getsize(facts.plain)
    os.truncate(facts.plain, size)


def change_a_mode(facts):
    os.chmod(facts.plain, 0o644)


def touch_a_file(facts):
    os.utime(facts.plain)


def rename_a_file(facts):
    os.rename(facts.plain, facts.plain + "~")
    os.rename(facts.plain + "~", facts.plain)


def connect_to_the_loopback(facts):
    socket.create_connection(("127.0.0.1", facts.tcp), 2).close()


def send_a_datagram(facts):
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.connect(("127.0.0.1", facts.udp))
    udp.send(CANARY.encode())
    assert udp.recv(100)  # whoever listens answers


def connect_to_a_unix_socket(facts):
    socket.socket(socket.AF_UNIX).connect(facts.unix)


def connect_to_an_abstract_socket(facts):
    socket.socket(socket.AF_UNIX).connect("\0" + facts.abstract)


def read_the_judges_environment(facts):
    Path(f"/proc/{facts.judge}/environ").read_bytes()


def read_the_judges_memory(facts):
    open(f"/proc/{facts.judge}/mem", "rb").close()


def list_the_judges_files(facts):
    os.readlink(f"/proc/{facts.judge}/fd/0")


def read_the_judges_command(facts):
    assert Path(f"/proc/{facts.judge}/cmdline").read_bytes()


def write_the_zygotes_memory(facts):
    open(f"/proc/{facts.zygote}/mem", "r+b").close()


def trace_the_zygote(facts):
    _trace(facts.zygote)


def trace_the_judge(facts):
    _trace(facts.judge)


def copy_the_judges_memory(facts):
    there, here = (ctypes.create_string_buffer(16) for _ in "12")
    local, remote = (struct.pack("NN", ctypes.addressof(b), 16) for b in (here, there))
    # That address may not be mapped there: EFAULT would mean that the door is open.
    if libc.process_vm_readv(facts.judge, local, 1, remote, 1, 0) < 0:
        error = ctypes.get_errno()
        if error != 14:
            raise OSError(error, os.strerror(error))


def stop_the_zygote(facts):
    os.kill(facts.zygote, signal.SIGSTOP)


def kill_the_zygote(facts):
    os.kill(facts.zygote, signal.SIGKILL)


def kill_the_zygote_through_its_descriptor(facts):
    signal.pidfd_send_signal(os.pidfd_open(facts.zygote), signal.SIGKILL)


def signal_the_judge(facts):
    os.kill(facts.judge, signal.SIGCONT)


def signal_the_judge_by_a_file(facts):
    reader, _writer = os.pipe()
    fcntl.fcntl(reader, fcntl.F_SETOWN, facts.judge)


def limit_the_judge(facts):
    import resource

    now = resource.prlimit(facts.judge, resource.RLIMIT_NOFILE)
    resource.prlimit(facts.judge, resource.RLIMIT_NOFILE, now)


def have_many_processes(facts):
    hold, release = os.pipe()
    for _ in range(MANY):
        if os.fork() == 0:
            os.close(release)
            os.read(hold, 1)
            os._exit(0)
    os.close(release)


def become_a_sibling(facts):
    sigchld, clone_parent = 17, 0x8000
    number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    pid = libc.syscall(number, sigchld | clone_parent, None, None, None, None)
    if pid == 0:
        os._exit(0)
    _check(pid)


def write_two_gigabytes(facts):
    with open(f"{facts.temp}/huge", "wb") as file:
        file.seek(2 << 30)
        file.write(b"x")
    os.unlink(f"{facts.temp}/huge")


def open_many_files(facts):
    for _ in range(MANY):
        os.dup(0)


def leave_shared_memory(facts):
    identity = libc.shmget(0, 4096, 0o1666)
    _check(identity)
    libc.shmctl(identity, 0, None)  # the control is not to leave it


def leave_a_key(facts):
    number = {"x86_64": 248, "aarch64": 217}[os.uname().machine]
    user_keyring = -4
    _check(libc.syscall(number, b"user", b"message", b"x", 1, user_keyring))


def open_a_ring(facts):
    parameters = ctypes.create_string_buffer(120)
    _check(libc.syscall(425, 4, parameters))


def become_root(facts):
    os.setuid(0)
    os.chown(facts.temp, 4711, 4711)  # under rung landlock it is uid 0, but without its powers


def mount_in_a_new_namespace(facts):
    new_user, new_mount = 0x10000000, 0x00020000
    _check(libc.unshare(new_user | new_mount))
    _check(libc.mount(b"none", facts.temp.encode(), b"tmpfs", 0, None))


def _trace(pid: int) -> None:
    attach, detach = 16, 17
    _check(libc.ptrace(attach, pid, None, None))
    time.sleep(0.05)
    libc.ptrace(detach, pid, None, None)


def _check(result: int) -> None:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


HONEST = "write_in_the_private_folder"


def write_in_the_private_folder(facts):
    """No attack: what has to work on every rung."""
    os.mkdir(f"{facts.temp}/folder")
    with open(f"{facts.temp}/folder/file", "w") as file:
        file.write("x" * 1000)
    assert os.stat(file.name).st_size == 1000
    os.kill(os.getpid(), 0)
    os.waitpid(os.posix_spawn("/usr/bin/env", ["env"], {}, file_actions=[
        (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]), 0)  # fmt: skip
    left, right = socket.socketpair()
    left.send(b"x")
    assert right.recv(1) == b"x"


ATTACKS = {
    name: function
    for name, function in list(globals().items())
    if callable(function)
    and getattr(function, "__module__", "") == __name__
    and not name.startswith("_")
    and name != "Facts"
}
