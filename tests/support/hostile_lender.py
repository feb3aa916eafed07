"""A hostile delegator with a paired daemon's real key: it says whatever it likes, and serves what it likes."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncssh
import httpx
from a2a.client.transports.jsonrpc import JsonRpcTransport
from a2a.types import AgentCard
from a2a.utils.errors import A2AError
from google.protobuf.json_format import MessageToDict

from sublet.a2a_client.client import A2APeerLink
from sublet.a2a_client.peer_http import PeerAuth
from sublet.a2a_wire.assertion import make_assertion
from sublet.a2a_wire.signer import signed
from sublet.daemon.peering.identity import load_identity
from sublet.daemon.ports.peer_link import PeerAddress, RemoteTask, Update
from sublet.protocol.ids import fingerprint, new_delegation_id
from sublet.protocol.messages import (
    Accept,
    ActiveLease,
    Endpoint,
    Invite,
    Mount,
    ProposedLease,
    Start,
    StartExtension,
    Task,
    Workspace,
)
from sublet.protocol.signing import sign_message
from support.a2a_world import envelope
from support.daemons import Daemon


class HostileMount(Mount):
    """A mount object with fields that nobody should read."""

    mount_options: dict[str, Any]


class HostileStart(Start):
    """A START that carries them."""

    mount: HostileMount


class RogueFiles(asyncssh.SFTPServer):
    """Serves a directory and hands out its links as they are, wherever they lead."""

    def readlink(self, path: bytes) -> bytes:
        return bytes(Path(self.map_path(path).decode()).readlink())


class _RogueServer(asyncssh.SSHServer):
    """Lets everybody in."""

    def begin_auth(self, username: str) -> bool:
        return False


class HostileLender:
    """Speaks to ``executor`` with the identity of ``delegator``, which is paired with it; for ``async with``."""

    def __init__(self, delegator: Daemon, executor: Daemon) -> None:
        mine = self._mine = load_identity(delegator.home / "state" / "keys")
        theirs = load_identity(executor.home / "state" / "keys")
        self.link = A2APeerLink(mine.key, mine.node_id, mine.fingerprint)
        self.peer = PeerAddress("bob", str(executor.info["a2a_url"]), theirs.public_key, None)
        self._host_key = asyncssh.generate_private_key("ssh-ed25519")

    async def __aenter__(self) -> HostileLender:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.link.aclose()

    def invitation(self, prompt: str, delegation_id: str | None = None, ttl_seconds: int = 60) -> Invite:
        """Return an INVITE; an id is taken as it is, valid or not."""
        return Invite(
            delegation_id=new_delegation_id(),
            task=Task(description="hostile", prompt=prompt),
            lease=ProposedLease(ttl_seconds=ttl_seconds, access_mode="rw"),
            workspace=Workspace(export_name="awcp/x"),
        ).model_copy(update={} if delegation_id is None else {"delegation_id": delegation_id})

    async def invite(self, message: Invite) -> tuple[RemoteTask, Accept]:
        """Send INVITE and expect ACCEPT."""
        task, answer = await self.link.invite(self.peer, message)
        assert isinstance(answer, Accept), answer
        return task, answer

    def start(
        self,
        delegation_id: str,
        port: int,
        *,
        host: str = "127.0.0.1",
        locator: str = "/",
        options: Mapping[str, Any] | None = None,
        remaining_seconds: int | None = 30,
        expires_at: str = "2099-01-01T00:00:00Z",
    ) -> Start:
        """Return a START for what is served at ``port``."""
        mount = HostileMount.model_construct(
            transport="sshfs",
            endpoint=Endpoint(host=host, port=port, user=delegation_id),
            export_locator=locator,
            credential="none",
            mount_options=dict(options or {}),
        )
        return HostileStart(
            delegation_id=delegation_id,
            lease=ActiveLease(expires_at=expires_at, access_mode="rw"),
            mount=mount,
            sublet=StartExtension(
                host_key=self._host_key.export_public_key().decode().strip(), remaining_seconds=remaining_seconds
            ),
        )

    async def post(self, body: bytes, authorization: str) -> httpx.Response:
        """Send a JSON-RPC body as it is, with that ``Authorization``."""
        headers = {"A2A-Version": "1.0", "Content-Type": "application/json", "Authorization": authorization}
        async with httpx.AsyncClient(headers=headers, timeout=20, trust_env=False) as http:
            return await http.post(self.peer.a2a_url, content=body)

    def assertion(self, *, age: float = 0) -> str:
        """Return what authenticates one request, made ``age`` seconds ago."""
        made = make_assertion(
            self._mine.key,
            node_id=self._mine.node_id,
            fingerprint=self._mine.fingerprint,
            audience=fingerprint(self.peer.public_key),
            clock=lambda: time.time() - age,
        )
        return f"Bearer {made}"

    def body(self, message: Invite | Start, task: RemoteTask | None = None) -> bytes:
        """Return the JSON-RPC request that carries ``message``, signed now; START goes to its task."""
        request = envelope(signed(message, self._mine.key, fingerprint(self.peer.public_key)))
        if task is not None:
            request.message.task_id, request.message.context_id = task.task_id, task.context_id
        return json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": MessageToDict(request)}
        ).encode()

    async def run(self, task: RemoteTask, start: Start) -> list[Update]:
        """Send START and return all that comes of it, the end last."""
        return [update async for update in self.link.run(self.peer, task, start)]

    async def refused(self, message: Invite, *, age: int = 0) -> A2AError:
        """Send an INVITE that must be refused, past all that our own side would object to, and return why.

        Args:
            message: the INVITE, signed or not.
            age: for how many seconds it was signed already; it may be negative.
        """
        audience = fingerprint(self.peer.public_key)
        auth = PeerAuth(self._mine.key, self._mine.node_id, self._mine.fingerprint, audience)
        async with httpx.AsyncClient(auth=auth, headers={"A2A-Version": "1.0"}, timeout=20, trust_env=False) as http:
            rpc = JsonRpcTransport(http, AgentCard(), self.peer.a2a_url, is_shared_httpx=True)
            at, nonce = int(time.time()) - age, secrets.token_hex(16)
            aged = sign_message(message, self._mine.key, recipient=audience, nonce=nonce, at=at)
            try:
                answer = await rpc.send_message(envelope(aged))
            except A2AError as error:
                return error
        raise AssertionError(f"it was accepted: {answer}")

    @asynccontextmanager
    async def serving(self, root: Path) -> AsyncIterator[int]:
        """Serve ``root`` by a rogue server while the block runs; yields its port."""
        server = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=_RogueServer,
            server_host_keys=[self._host_key],
            sftp_factory=lambda channel: RogueFiles(channel, chroot=bytes(root)),
        )
        try:
            yield server.get_port()
        finally:
            server.close()
            await server.wait_closed()
