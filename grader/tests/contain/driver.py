"""Plays the judge: makes a world worth attacking, a cell on a rung, and runs the stand-in there.

python driver.py FOLDER RUNG ATTACK...; RUNG "" is the control: no cell and no shield. Prints JSON:
{"why_not": a sentence, "outcomes": {attack: "done" or why not}, "left": [what is left behind]}.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

sys.path.insert(0, sys.argv[1])

from grader.judge.contain import LADDER, Cell, attempt
from grader.judge.contain.cell import processes_of
from grader.judge.contain.ladder import lay_out_solver
from shared.assignment import assignment

from grader.tests.contain.attacks import CANARY  # isort: skip

HERE = Path(__file__).parent
RUN_S = 100


def main() -> None:
    rung = next((r for r in LADDER if r.name == sys.argv[2]), None)
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(tempfile.TemporaryDirectory(prefix="world-"))
        os.chmod(made, 0o755)
        world = Path(made)
        staged = world / "staged"
        lay_out_solver(staged)
        for file in ("attacks.py", "stand_in.py"):
            (staged / file).write_bytes((HERE / file).read_bytes())
        if rung:
            found = attempt(rung, staged, secret=())
            if not found.works:
                print(json.dumps({"why_not": found.why_not}))
                return
        facts = _facts(world, stack)
        print(json.dumps(_outcomes(rung, staged, facts)))


def _facts(world: Path, stack: contextlib.ExitStack) -> dict:
    repository = world / "repository"
    repository.mkdir()
    (repository / "plain").write_text(CANARY)
    (world / "secret").write_text(CANARY)
    (world / "secret").chmod(0o600)
    listening = {}
    for name, family, kind, address in (
        ("unix", socket.AF_UNIX, socket.SOCK_STREAM, str(world / "socket")),
        ("abstract", socket.AF_UNIX, socket.SOCK_STREAM, f"\0world-{os.getpid()}"),
        ("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        ("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
    ):
        listening[name] = stack.enter_context(socket.socket(family, kind))
        listening[name].bind(address)
        if kind == socket.SOCK_STREAM:
            listening[name].listen(8)
    os.chmod(world / "socket", 0o777)
    threading.Thread(target=_echo, args=[listening["udp"]], daemon=True).start()
    # For the judge, a process of its account: the controls would harm the real one.
    judge = stack.enter_context(subprocess.Popen(["sleep", "100"], stdin=subprocess.DEVNULL))
    stack.callback(judge.kill)
    shared = f"/tmp/shared-{os.getpid()}"
    stack.callback(Path(shared).unlink, missing_ok=True)
    return {
        "secret": str(world / "secret"),
        "repository": str(repository),
        "plain": str(repository / "plain"),
        "unix": str(world / "socket"),
        "abstract": f"world-{os.getpid()}",
        "tcp": listening["tcp"].getsockname()[1],
        "udp": listening["udp"].getsockname()[1],
        "shared": shared,
        "judge": judge.pid,
    }


def _echo(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            data, sender = sock.recvfrom(100)
            sock.sendto(data, sender)


def _outcomes(rung, staged: Path, facts: dict) -> dict:
    limits = dataclasses.replace(assignment().limits, processes=8, open_files=64)
    cell = Cell(rung, staged, limits) if rung else None
    temp = cell.temp if cell else tempfile.mkdtemp(dir=staged.parent)
    told = {"facts": facts | {"temp": temp}, "attacks": sys.argv[3:]}
    told["shield"] = cell.shield().encoded() if cell else None
    start = (
        f"import sys; sys.path[:0] = [{str(staged)!r}, {str(staged / 'released')!r}]; "
        "import stand_in; stand_in.main()"
    )
    command = [sys.executable, "-P", "-S", "-c", start, json.dumps(told)]
    done = subprocess.run(
        cell.command(command) if cell else command,
        env=cell.environment() if cell else None,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    left = []
    if cell:
        cell.close()
        left = [str(p) for p in (cell.folder, Path(facts["shared"])) if p and p.exists()]
        left += [f"pid {pid}" for pid in (processes_of(cell.uid) if rung.own_uid else ())]
    if done.returncode:
        raise SystemExit(done.stderr)
    return {"outcomes": json.loads(done.stdout), "left": left}


if __name__ == "__main__":
    main()
