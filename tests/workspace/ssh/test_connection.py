"""Logging in at a lender that answers with what is no SSH."""

from __future__ import annotations

import asyncio

import asyncssh
import pytest

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.workspace.export import MountTarget
from sublet.workspace.ssh.connection import connect

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("says", [b"SSH-2.0-\xff\xfe\r\n", b"HTTP/1.1 400\r\n\r\n", b"\0" * 4096, b""])
async def test_a_lender_that_speaks_no_ssh_is_a_failed_mount(says: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(says)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    key = asyncssh.generate_private_key("ssh-ed25519")
    async with server:
        host, port = server.sockets[0].getsockname()
        target = MountTarget(host, port, "lse_1", key.export_public_key().decode().strip())
        with pytest.raises(SubletError) as failed:
            await connect(target, key, 5)
    assert failed.value.code is ErrorCode.MOUNT_FAILED
