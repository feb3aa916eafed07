"""A running A2A face on port 0, the services behind it played by the test, and callers of all kinds."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import httpx
from a2a.client import ClientCallContext
from a2a.client.transports.jsonrpc import JsonRpcTransport
from a2a.types import AgentCard, Message, Role, SendMessageRequest, Task
from nacl.signing import SigningKey

from sublet.a2a_client.client import A2APeerLink
from sublet.a2a_client.peer_http import PeerAuth
from sublet.a2a_server.context import A2AContext
from sublet.a2a_server.face import A2AFace
from sublet.a2a_server.task_schema import STORE_NAME
from sublet.a2a_wire.assertion import make_assertion
from sublet.a2a_wire.parts import to_part
from sublet.a2a_wire.signer import signed
from sublet.daemon.ports.given_to_a2a import AskedBack, KnownPeer, PairReply, PairRequest
from sublet.daemon.ports.peer_link import PeerAddress
from sublet.policy.decision import Subject
from sublet.policy.request_rules import NOT_NARROWED, Narrowing
from sublet.protocol import ids
from sublet.protocol.chain import Chain
from sublet.protocol.codec import AnyMessage
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.messages import (
    Accept,
    ActiveLease,
    Done,
    Endpoint,
    Invite,
    Mount,
    Progress,
    ProposedLease,
    RemoteConstraints,
    RemoteMount,
    Start,
    Workspace,
)
from sublet.protocol.messages import Task as AwcpTask
from sublet.supervisor.agent_config import AgentConfig, Skill
from sublet.supervisor.provider_config import CommandConfig

SECRET = "s3cret-credential-of-the-lease"
TOKEN = "tok_" + "a" * 40


@dataclass
class Node:
    """A daemon's identity."""

    name: str
    key: SigningKey = field(default_factory=SigningKey.generate)

    @property
    def public(self) -> bytes:
        return bytes(self.key.verify_key)

    @property
    def node_id(self) -> str:
        return ids.node_id(self.public)

    @property
    def fingerprint(self) -> str:
        return ids.fingerprint(self.public)

    def known(self) -> KnownPeer:
        return KnownPeer(self.name, self.public, self.fingerprint)

    def assertion(self, audience: str) -> str:
        return make_assertion(self.key, node_id=self.node_id, fingerprint=self.fingerprint, audience=audience)

    def link(self) -> A2APeerLink:
        return A2APeerLink(self.key, self.node_id, self.fingerprint)


class MemoryNonces:
    """Replay memory of one test."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def first_seen(self, nonce: str, at: int) -> bool:
        if nonce in self.seen:
            return False
        self.seen.add(nonce)
        return True

    def of(self, caller: str) -> MemoryNonces:
        return self


class ScriptedExecutor:
    """An ``ExecutorApi`` whose work the test steers: ``updates`` come at once, the rest waits for its gate."""

    def __init__(self) -> None:
        self.invited: list[Invite] = []
        self.started: list[Start] = []
        self.renewed: list[Start] = []
        self.renewal_refusal: Exception | None = None
        self.cancelled: list[str] = []
        self.wound_down: list[tuple[str, SubletError, float]] = []
        self.closed: list[str] = []
        self.sources: list[str] = []
        self.owners: dict[str, str] = {}
        self.invite_gate = _open()
        self.gate = _open()
        self.running = asyncio.Event()
        self.end_gate = _open()
        self.updates: list[Progress] = []
        self.late_updates: list[Progress] = []
        self.refusal: Exception | None = None
        self.failure: Exception | None = None
        self.summary = "all done"

    async def invite(self, message: Invite, peer: KnownPeer, *, source_host: str) -> Accept:
        self.invited.append(message)
        self.sources.append(source_host)
        await self.invite_gate.wait()
        if self.refusal is not None:
            raise self.refusal
        self.owners[message.delegation_id] = peer.fingerprint
        return Accept(delegation_id=message.delegation_id, remote_mount=RemoteMount(mount_point="/mnt/x"))

    async def run(self, message: Start, peer: KnownPeer, *, source_host: str) -> AsyncGenerator[Progress | Done, None]:
        self.started.append(message)
        try:
            for update in self.updates:
                yield update.model_copy(update={"delegation_id": message.delegation_id})
            self.running.set()
            await self.gate.wait()
            for update in self.late_updates:
                yield update.model_copy(update={"delegation_id": message.delegation_id})
            await self.end_gate.wait()
            if self.failure is not None:
                raise self.failure
            yield Done(delegation_id=message.delegation_id, final_summary=self.summary)
        finally:
            self.closed.append(message.delegation_id)

    async def renew(self, message: Start, peer: KnownPeer, *, source_host: str) -> Accept:
        self.renewed.append(message)
        if self.renewal_refusal is not None:
            raise self.renewal_refusal
        return Accept(
            delegation_id=message.delegation_id,
            remote_mount=RemoteMount(mount_point="/mnt/x"),
            remote_constraints=RemoteConstraints(max_ttl_seconds=message.sublet.remaining_seconds),
        )

    async def cancel(self, delegation_id: str, peer: KnownPeer) -> None:
        await self.check_owner(delegation_id, peer)
        self.cancelled.append(delegation_id)

    async def wind_down(self, delegation_id: str, peer: KnownPeer, error: SubletError, seconds: float) -> None:
        await self.check_owner(delegation_id, peer)
        self.wound_down.append((delegation_id, error, seconds))

    async def check_invite(self, message: Invite, peer: KnownPeer) -> None:
        first = next((one for one in self.invited if one.delegation_id == message.delegation_id), message)
        if first.task != message.task:
            raise SubletError(ErrorCode.DECLINED, "this delegation id was used before", "Invite again with a new id.")

    async def check_owner(self, delegation_id: str, peer: KnownPeer) -> None:
        if self.owners.get(delegation_id) != peer.fingerprint:
            raise SubletError(ErrorCode.DECLINED, "no such delegation of yours", "Start with INVITE.")


class ScriptedMessages:
    """A ``MessageApi`` that answers word by word; ``gate`` holds back what follows the first word."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Subject, str]] = []
        self.owners: list[str] = []
        self.chains: list[Chain] = []
        self.gate = _open()
        self.running = asyncio.Event()
        self.closed = 0
        self.failure: Exception | None = None
        self.narrowed: list[Narrowing] = []

    async def answer(
        self,
        text: str,
        caller: Subject,
        *,
        context_id: str,
        owner: str,
        chain: Chain,
        answers: bool = False,
        narrowing: Narrowing = NOT_NARROWED,
    ) -> AsyncGenerator[str | AskedBack, None]:
        self.asked.append((text, caller, context_id))
        self.narrowed.append(narrowing)
        self.owners.append(owner)
        self.chains.append(chain)
        try:
            if text == "ask me" and not answers:
                yield AskedBack("What for?")
                return
            yield "you said: "
            self.running.set()
            await self.gate.wait()
            if self.failure is not None:
                raise self.failure
            yield text
        finally:
            self.closed += 1


class ScriptedPairing:
    """A ``PairingApi`` that knows one token."""

    def __init__(self) -> None:
        self.requests: list[PairRequest] = []

    async def complete(self, request: PairRequest) -> PairReply:
        self.requests.append(request)
        if request.token_id != "good":
            raise SubletError(LocalCode.TOKEN_INVALID, "the link is used or expired", "Make a new one.")
        return PairReply("node-x", "key", "http://127.0.0.1:1", None, "proof")


AGENT = AgentConfig(
    id="shell",
    name="Shell",
    description="Runs scripts",
    version="2.1.0",
    provider=CommandConfig(type="command", argv=("sh", "-s")),
    skills=(Skill(id="run", name="Run", description="Runs a script", tags=("shell",), examples=("make test",)),),
)
REVIEWER = AGENT.model_copy(update={"id": "reviewer", "name": "Reviewer"})


@dataclass
class World:
    """A served face, and who may call it: ``alice`` is paired, ``mallory`` is paired too and hostile."""

    context: A2AContext
    face: A2AFace
    executor: ScriptedExecutor
    messages: ScriptedMessages
    pairing: ScriptedPairing
    changed_keys: list[tuple[str, str]]
    me: Node
    alice: Node
    mallory: Node

    @property
    def url(self) -> str:
        return self.face.address

    @property
    def database(self) -> Path:
        return self.context.state_dir / STORE_NAME

    def peer(self) -> PeerAddress:
        """How a peer calls this face."""
        return PeerAddress("bob", self.url, self.me.public, None)

    def request(
        self, sender: Node, message: AnyMessage, task: Task | None = None, *, recipient: str | None = None
    ) -> SendMessageRequest:
        """Return ``message`` signed by ``sender``, as an A2A request."""
        return envelope(signed(message, sender.key, recipient or self.me.fingerprint), task)

    @asynccontextmanager
    async def rpc(self, caller: Node | str) -> AsyncIterator[JsonRpcTransport]:
        """The SDK's 1.0 transport, authenticated as a peer or by a plain token."""
        auth: httpx.Auth
        if isinstance(caller, Node):
            auth = PeerAuth(caller.key, caller.node_id, caller.fingerprint, self.me.fingerprint)
        else:
            auth = _Token(caller)
        async with httpx.AsyncClient(auth=auth, headers={"A2A-Version": "1.0"}, timeout=20, trust_env=False) as http:
            yield JsonRpcTransport(http, AgentCard(), self.url + "/", is_shared_httpx=True)

    async def stored(self) -> int:
        """How many tasks the store holds."""
        rows = await self.face._store._rows("SELECT count(*) FROM a2a_task", {})
        return cast("int", rows[0][0])


class _Token(httpx.Auth):
    def __init__(self, token: str) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Any:
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


@asynccontextmanager
async def world(state_dir: Path, *, agents: tuple[AgentConfig, ...] = (AGENT,), **changes: Any) -> AsyncIterator[World]:
    """Serve a face until the block ends."""
    me, alice, mallory = Node("bob"), Node("alice"), Node("mallory")
    executor, messages, pairing = ScriptedExecutor(), ScriptedMessages(), ScriptedPairing()
    changed: list[tuple[str, str]] = []
    peers = {node.node_id: node.known() for node in (alice, mallory)}
    context = A2AContext(
        executor=executor,
        messages=messages,
        pairing=pairing,
        whereabouts=cast(Any, None),
        key=me.key,
        node_id=me.node_id,
        fingerprint=me.fingerprint,
        version="0.1.0",
        agents=lambda: agents,
        find_peer=peers.get,
        key_changed=lambda node, shown: changed.append((node, shown)),
        find_token={TOKEN: "ci"}.get,
        nonces=MemoryNonces(),
        host="127.0.0.1",
        port=0,
        public_url=None,
        tls=None,
        state_dir=state_dir,
    )
    async with served(replace(context, **changes)) as face:
        yield World(face[0], face[1], executor, messages, pairing, changed, me, alice, mallory)


@asynccontextmanager
async def served(context: A2AContext) -> AsyncIterator[tuple[A2AContext, A2AFace]]:
    """Serve a face with that context until the block ends."""
    face = A2AFace(context)
    await face.start()
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(face.serve())
        try:
            yield context, face
        finally:
            serving.cancel()
    await face.aclose()  # where the test was over before the task had begun to serve


def envelope(message: AnyMessage, task: Task | None = None) -> SendMessageRequest:
    """Return an A2A request that carries ``message`` as it is."""
    return SendMessageRequest(
        message=Message(
            message_id=secrets.token_hex(8),
            role=Role.ROLE_USER,
            task_id=task.id if task else "",
            context_id=task.context_id if task else "",
            parts=[to_part(message)],
        )
    )


def text(words: str, **fields: Any) -> SendMessageRequest:
    """Return a plain message."""
    message = Message(message_id=secrets.token_hex(8), role=Role.ROLE_USER, **fields)
    message.parts.add(text=words)
    return SendMessageRequest(message=message)


def an_invite(delegation_id: str | None = None) -> Invite:
    """Return an INVITE."""
    return Invite(
        delegation_id=delegation_id or ids.new_delegation_id(),
        task=AwcpTask(description="d", prompt="p"),
        lease=ProposedLease(ttl_seconds=60, access_mode="rw"),
        workspace=Workspace(export_name="awcp/x"),
    )


def a_start(delegation_id: str) -> Start:
    """Return a START with a credential."""
    return Start(
        delegation_id=delegation_id,
        lease=ActiveLease(expires_at="2027-01-01T00:00:00Z", access_mode="rw"),
        mount=Mount(
            endpoint=Endpoint(host="127.0.0.1", port=22, user="u"), export_locator="/workspace", credential=SECRET
        ),
    )


def a_progress(words: str, **fields: Any) -> Progress:
    """Return a piece of output."""
    return Progress.model_validate(
        {"delegation_id": "dlg", "phase": "running", "stream": "stdout", "text": words, **fields}
    )


def context(**parameters: str) -> ClientCallContext:
    """Return a client call context with extra headers."""
    return ClientCallContext(service_parameters=parameters)


async def until(condition: Any) -> None:
    """Wait until ``condition()`` holds; the test's own time limit ends a wait in vain."""
    while not condition():
        await asyncio.sleep(0.005)


def seconds_since(began: float) -> float:
    """Return how long ago ``began`` was, on the monotonic clock."""
    return time.monotonic() - began


def _open() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event
