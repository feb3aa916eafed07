"""Lines of a program as messages of MCP."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import mcp.types as t
import pytest
from mcp.shared.message import SessionMessage

from sublet.supervisor.guarded_process import GuardedProcess
from sublet.supervisor.mcp_streams import MAX_LINE_BYTES, session_streams

pytestmark = pytest.mark.anyio

ECHO = "echo nonsense; echo said >&2; cat"


async def test_messages_pass_and_what_is_none_does_not(tmp_path: Path) -> None:
    process = await GuardedProcess.start(["sh", "-c", ECHO], {"PATH": os.defpath}, tmp_path, None)
    said: list[bytes] = []
    ended = anyio.Event()
    try:
        async with session_streams(process, said.append, ended.set) as (read, write):
            ping = t.JSONRPCNotification(jsonrpc="2.0", method="notifications/x")
            with anyio.fail_after(20):
                await write.send(SessionMessage(ping))
                got: Any = await read.receive()
                while not said:
                    await anyio.sleep(0.01)
                assert got.message == ping
                assert not ended.is_set()
                assert process.stdin is not None
                process.stdin.close()
                await ended.wait()
    finally:
        await process.close()
    assert b"".join(said) == b"said\n"


async def test_a_line_that_is_too_long_ends_it(tmp_path: Path) -> None:
    argv = ["sh", "-c", f"head -c {MAX_LINE_BYTES + 1} /dev/zero; cat"]
    process = await GuardedProcess.start(argv, {"PATH": os.defpath}, tmp_path, None)
    ended = anyio.Event()
    try:
        async with session_streams(process, ended=ended.set) as (read, _):
            with anyio.fail_after(20):
                await ended.wait()
                with pytest.raises(anyio.EndOfStream):
                    await read.receive()
    finally:
        await process.close()
