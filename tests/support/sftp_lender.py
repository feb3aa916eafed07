"""A lender for tests of the executor's side: a stock SFTP server on loopback, in this process or in one of its own.

As a program (``python sftp_lender.py ROOT PUBLIC_KEY``) it prints its port and host key and serves until it is killed,
so that it can be frozen.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncssh

from sublet.workspace.export import MountTarget

LEASE = "lease-1"
Files = Callable[[asyncssh.SSHServerChannel[bytes]], asyncssh.SFTPServer]


def files_of(root: Path) -> Files:
    """Serve ``root``."""
    return lambda channel: asyncssh.SFTPServer(channel, chroot=bytes(root))


class _Server(asyncssh.SSHServer):
    def __init__(self, key: str) -> None:
        self._key = asyncssh.import_public_key(key)

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return username == LEASE and key == self._key


def public_line(key: asyncssh.SSHKey) -> str:
    """Return the public half of ``key`` as an OpenSSH line."""
    return key.export_public_key().decode().strip()


@contextlib.asynccontextmanager
async def lender(files: Files, key: asyncssh.SSHKey) -> AsyncIterator[MountTarget]:
    """Serve ``files`` to the holder of ``key`` while the block runs."""
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    public = public_line(key)
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=lambda: _Server(public),
        server_host_keys=[host_key],
        sftp_factory=files,
        allow_scp=False,
    )
    try:
        yield MountTarget("127.0.0.1", server.get_port(), LEASE, public_line(host_key))
    finally:
        server.close()
        await server.wait_closed()


@contextlib.asynccontextmanager
async def lender_that_dials(files: Files, key: asyncssh.SSHKey, port: int) -> AsyncIterator[MountTarget]:
    """Dial ``port`` on loopback and serve ``files`` over that connection while the block runs."""
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    public = public_line(key)

    async def dial() -> asyncssh.SSHServerConnection:
        return await asyncssh.connect_reverse(
            "127.0.0.1",
            port,
            config=None,
            server_factory=lambda: _Server(public),
            server_host_keys=[host_key],
            sftp_factory=files,
        )

    async with asyncio.TaskGroup() as group:
        connecting = group.create_task(dial())
        try:
            yield MountTarget("127.0.0.1", port, LEASE, public_line(host_key))
        finally:
            connection = await connecting
            connection.abort()
            await connection.wait_closed()


@contextlib.asynccontextmanager
async def lender_process(root: Path, key: asyncssh.SSHKey) -> AsyncIterator[tuple[MountTarget, int]]:
    """Serve ``root`` from a process of its own; yields where it is reached and its process id."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, str(root), public_line(key), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        host_key = (await process.stdout.readline()).decode().strip()
        yield MountTarget("127.0.0.1", port, LEASE, host_key), process.pid
    finally:
        process.kill()
        await process.wait()


async def _serve(root: Path, public: str) -> None:
    async with lender(files_of(root), asyncssh.import_public_key(public)) as target:
        sys.stdout.write(f"{target.port}\n{target.host_key}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2]))
