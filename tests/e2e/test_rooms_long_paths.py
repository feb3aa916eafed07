"""Rooms where the paths of temporary and runtime directories are too long for the sockets of the bus."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemon_rooms import WAIT_SECONDS, bodies, shared_room
from support.daemons import two_daemons, wait_for
from support.typed_commands import Typing

HOME_CHARS = 82
"""Short enough for the socket of commands, too long for those of the bus."""


@pytest.fixture
def base() -> Iterator[Path]:
    short = Path(tempfile.mkdtemp(dir="/tmp"))
    made = short / ("d" * (HOME_CHARS - len(str(short)) - len("//a")))
    made.mkdir()
    yield made
    shutil.rmtree(short, ignore_errors=True)


@pytest.mark.timeout(240)
def test_rooms_work_where_tmpdir_is_long(base: Path) -> None:
    temporary = base / ("t" * 100)
    temporary.mkdir()
    with two_daemons(base, environ={"TMPDIR": str(temporary)}) as daemons:
        alice, bob = (Typing(daemon) for daemon in daemons)
        room = shared_room(alice, bob)
        alice.run("send", room, "hello")
        wait_for(lambda: bodies(bob, room) == ["hello"], WAIT_SECONDS, "the message")
        assert [one for one in alice.json("status")["remarks"] if "was taken" not in one] == []
