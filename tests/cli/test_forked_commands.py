"""Programs of a test ask the process that forks commands for it, unless they are elsewhere or want another kind."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from support.command_server import COMMANDS, FORKED_DAEMONS, command_server
from support.daemons import SUBLET
from support.quick import TESTS

PROGRAM = f"""
from support.command_server import command_server
server = command_server()
done = server.run([{str(SUBLET)!r}, "--version"], env={{"PATH": "/usr/bin:/bin"}}, stdin="", timeout=60)
print(done.returncode, done.stdout.strip(), len(server._processes))
"""


def told(**changes: str | None) -> list[str]:
    """Return what the program tells: the status of a command, what it printed, and how many processes were started."""
    environ = {**os.environ, "PYTHONPATH": str(TESTS)}
    for name, value in changes.items():
        environ.pop(name, None)
        environ |= {} if value is None else {name: value}
    argv = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_program_of_a_test_asks_the_process_of_the_test() -> None:
    here = command_server().run([str(SUBLET), "--version"], env={"PATH": "/usr/bin:/bin"}, stdin="", timeout=60)
    assert told() == ["0", *here.stdout.split(), "0"]
    again = command_server().run([str(SUBLET), "--version"], env={"PATH": "/usr/bin:/bin"}, stdin="", timeout=60)
    assert (again.returncode, again.stdout) == (0, here.stdout), "it goes on when the program has ended"


@pytest.mark.parametrize("changes", [{FORKED_DAEMONS: None}, {COMMANDS: None}], ids=["real daemons", "not told"])
def test_who_wants_something_else_has_a_process_of_its_own(changes: dict[str, str | None]) -> None:
    command_server()
    assert int(told(**changes)[-1]) == (1 if FORKED_DAEMONS in changes else 2)
