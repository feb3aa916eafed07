"""A hostile executor with a paired daemon's real keys and in its place: it answers and does whatever it likes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import asyncssh

from sublet.a2a_server.context import A2AContext
from sublet.daemon.peering.identity import load_identity
from sublet.daemon.ports.given_to_a2a import KnownPeer
from sublet.protocol.messages import (
    Accept,
    AcceptExtension,
    Done,
    Invite,
    Progress,
    RemoteConstraints,
    RemoteMount,
    Start,
)
from support.a2a_world import AGENT, MemoryNonces, ScriptedExecutor, ScriptedMessages, ScriptedPairing, served
from support.daemons import Daemon

Deed = Callable[["HostileWorker", Start], Awaitable[Done]]


async def nothing(worker: HostileWorker, start: Start) -> Done:
    """Say that all is done."""
    return Done(delegation_id=start.delegation_id, final_summary="all done")


class HostileWorker(ScriptedExecutor):
    """An ``ExecutorApi`` that does ``deed`` with each START. ``accepting`` changes fields of every ACCEPT."""

    def __init__(self) -> None:
        super().__init__()
        self.deed: Deed = nothing
        self.accepting: dict[str, Any] = {}
        self.keys: dict[str, asyncssh.SSHKey] = {}
        self.starts: dict[str, Start] = {}

    async def invite(self, message: Invite, peer: KnownPeer, *, source_host: str) -> Accept:
        self.owners[message.delegation_id] = peer.fingerprint
        key = self.keys[message.delegation_id] = asyncssh.generate_private_key("ssh-ed25519")
        line = self.accepting.get("public_key", key.export_public_key().decode().strip())
        return Accept(
            delegation_id=message.delegation_id,
            remote_mount=RemoteMount(mount_point=self.accepting.get("mount_point", "/mnt/x")),
            remote_constraints=RemoteConstraints(public_key=line),
            sublet=AcceptExtension(transport=message.requirements.transport),
        )

    async def run(self, message: Start, peer: KnownPeer, *, source_host: str) -> AsyncGenerator[Progress | Done, None]:
        self.starts[message.delegation_id] = message
        yield Progress(delegation_id=message.delegation_id, phase="running")
        yield await self.deed(self, message)

    @asynccontextmanager
    async def connect(
        self, start: Start, *, user: str | None = None, key: asyncssh.SSHKey | None = None
    ) -> AsyncIterator[asyncssh.SSHClientConnection]:
        """Log in to the lender, by default as the lease of ``start`` with its own key."""
        endpoint = start.mount.endpoint
        connection = await asyncssh.connect(
            endpoint.host,
            endpoint.port,
            username=endpoint.user if user is None else user,
            client_keys=[key or self.keys[start.delegation_id]],
            known_hosts=None,
            config=None,
            agent_path=None,
        )
        try:
            yield connection
        finally:
            connection.abort()
            await connection.wait_closed()


@asynccontextmanager
async def in_place_of(
    executor: Daemon, delegator: Daemon, state_dir: Path, worker: HostileWorker | None = None
) -> AsyncIterator[HostileWorker]:
    """Stop ``executor`` and answer ``delegator`` with its keys at its address, until the block ends."""
    await asyncio.to_thread(executor.down)
    mine = load_identity(executor.home / "state" / "keys")
    theirs = load_identity(delegator.home / "state" / "keys")
    address = urlsplit(str(executor.info["a2a_url"]))
    worker = worker or HostileWorker()
    known = KnownPeer("alice", theirs.public_key, theirs.fingerprint)
    context = A2AContext(
        executor=worker,
        messages=ScriptedMessages(),
        pairing=ScriptedPairing(),
        whereabouts=cast(Any, None),
        key=mine.key,
        node_id=mine.node_id,
        fingerprint=mine.fingerprint,
        version="0.1.0",
        agents=lambda: (AGENT,),
        find_peer={theirs.node_id: known}.get,
        key_changed=lambda node, shown: None,
        find_token=lambda token: None,
        nonces=MemoryNonces(),
        host=str(address.hostname),
        port=address.port or 0,
        public_url=None,
        tls=None,
        state_dir=state_dir,
    )
    async with served(context):
        yield worker
