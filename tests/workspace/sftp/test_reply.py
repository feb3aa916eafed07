"""Work that waits for a thread closes what it holds also where no thread ever takes it."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from attacks.kit.view_lease import CREAT, READ, WRITE, Lease, served
from sublet.workspace.git.take import QUICK_BYTES
from sublet.workspace.sftp.reply import SlowReply, ThreadWork
from sublet.workspace.view.rules import DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules
from support.sftp_client import frame, next_reply, string

RULES = Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, [], git="rw")


def test_work_is_done_or_dropped() -> None:
    told: list[str] = []

    def do() -> bytes:
        told.append("done")
        return b""

    work = ThreadWork(do, lambda: told.append("dropped"))
    work()
    del work
    assert told == ["done"]
    del_me = ThreadWork(do, lambda: told.append("dropped"))
    del del_me
    assert told == ["done", "dropped"]


def asked(lease: Lease, kind: int, body: bytes) -> SlowReply:
    lease.core.receive(frame(kind, 7, body))
    reply = next_reply(lease.core)
    assert isinstance(reply, SlowReply)
    return reply


@pytest.mark.parametrize("what", ["rename", "link", "fsync"])
@pytest.mark.parametrize("closed", [False, True])
def test_a_session_that_ends_before_a_thread_took_its_work_leaves_nothing_open(
    tmp_path: Path, what: str, closed: bool
) -> None:
    root = tmp_path / "lent"
    (root / ".git/objects/ab").mkdir(parents=True)
    with served(root, RULES) as lease:
        draft, name = b".git/objects/ab/tmp_obj_1", b".git/objects/ab/" + b"1" * 38
        handle = lease.handle(draft, READ | WRITE | CREAT)
        for offset in range(0, QUICK_BYTES + 1, 32768):
            lease.ask(6, string(handle) + struct.pack(">Q", offset) + string(bytes(32768)))
        before = len(os.listdir("/proc/self/fd"))
        pair = string(b"/workspace/" + draft) + string(b"/workspace/" + name)
        if what == "fsync":
            reply = asked(lease, 200, string(b"fsync@openssh.com") + string(handle))
        else:
            op = b"posix-rename@openssh.com" if what == "rename" else b"hardlink@openssh.com"
            reply = asked(lease, 200, string(op) + pair)
        assert len(os.listdir("/proc/self/fd")) > before
        if closed:
            lease.core.close()
        del reply
        assert len(os.listdir("/proc/self/fd")) <= before
