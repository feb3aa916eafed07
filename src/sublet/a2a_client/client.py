"""The outgoing control plane: ``PeerLink`` over A2A (DESIGN 4.2)."""

from __future__ import annotations

import dataclasses
import uuid
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial

import anyio
import httpx
from a2a.types import Message, Role, SendMessageRequest, Task
from a2a.utils.errors import A2AError, TaskNotCancelableError, TaskNotFoundError
from nacl.signing import SigningKey
from pydantic import TypeAdapter, ValidationError

from sublet.a2a_client.answers import AnswerReader
from sublet.a2a_client.peer_http import PeerAuth, fetch_certificate, open_client
from sublet.a2a_client.session import PeerSession, causes, it_says, told
from sublet.a2a_client.stream import Follower
from sublet.a2a_wire.card import offered_agents, offered_bus
from sublet.a2a_wire.names import MOVED_PATH, PAIR_PATH
from sublet.a2a_wire.parts import to_part
from sublet.a2a_wire.signer import signed
from sublet.daemon.api.peers import AgentView
from sublet.daemon.ports.given_to_a2a import Moved, PairReply, PairRequest
from sublet.daemon.ports.peer_link import BusAddress, PeerAddress, RemoteTask, Update
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError, error_code
from sublet.protocol.ids import fingerprint as fingerprint_of
from sublet.protocol.messages import AWCP_URI, Accept, Error, Invite, Start
from sublet.protocol.patterns import Pattern
from sublet.protocol.text import clean_line

MAX_SESSIONS = 256
BEGINNING_SECONDS = 10.0
"""How long a peer may take from when an INVITE came until there is a task of it."""
_LOOK_SECONDS = 0.5
_REMOTE_ID = Pattern(r"[\x21-\x7e]{1,128}")
_REPLY = TypeAdapter(PairReply)


class A2APeerLink:
    """Calls paired daemons.

    Args:
        key: our Ed25519 key.
        node_id: our node id.
        fingerprint: our key's fingerprint.
        home: what we say of our home.
    """

    def __init__(self, key: SigningKey, node_id: str, fingerprint: str, home: str = "") -> None:
        self._home = home
        self._key = key
        self._node_id = node_id
        self._fingerprint = fingerprint
        self._sessions: OrderedDict[PeerAddress, PeerSession] = OrderedDict()

    async def invite(self, peer: PeerAddress, message: Invite) -> tuple[RemoteTask, Accept | Error]:
        """``PeerLink.invite``."""
        session = await self._verified(peer)
        refused_task = RemoteTask("", message.delegation_id)
        try:
            try:
                task = await session.send(self._request(peer, message, None))
            except SubletError as error:
                # The connection may have broken before or after the peer read it. Asking again is harmless: the
                # peer knows a repeated INVITE by its delegation id.
                if error.code is not LocalCode.PEER_UNREACHABLE or not _was_connected(error):
                    raise
                task = await session.send(self._request(peer, message, None))
        except A2AError as error:
            return refused_task, refusal(message.delegation_id, error)
        return self._answer(peer, message, task)

    async def run(self, peer: PeerAddress, task: RemoteTask, message: Start) -> AsyncGenerator[Update, None]:
        """``PeerLink.run``."""
        follower = Follower(
            partial(self._verified, peer),
            task.task_id,
            lambda: self._request(peer, message, task),
            AnswerReader(message.delegation_id, peer.public_key, self._fingerprint),
            partial(refusal, message.delegation_id),
        )
        async with aclosing(follower.updates()) as updates:
            async for update in updates:
                yield update

    async def follow(
        self, peer: PeerAddress, task: RemoteTask, message: Callable[[], Start]
    ) -> AsyncGenerator[Update, None]:
        """``PeerLink.follow``."""
        delegation_id = task.context_id
        follower = Follower(
            partial(self._verified, peer),
            task.task_id,
            lambda: self._request(peer, message(), task),
            AnswerReader(delegation_id, peer.public_key, self._fingerprint),
            partial(refusal, delegation_id),
            renew=lambda: self.renew(peer, task, message()),
        )
        async with aclosing(follower.updates()) as updates:
            async for update in updates:
                yield update

    async def renew(self, peer: PeerAddress, task: RemoteTask, message: Start) -> Accept | Error:
        """``PeerLink.renew``."""
        session = await self._verified(peer)
        try:
            answer = await session.ask(self._request(peer, message, task))
        except A2AError as error:
            return refusal(message.delegation_id, error)
        return AnswerReader(message.delegation_id, peer.public_key, self._fingerprint).reply(answer)

    async def cancel(self, peer: PeerAddress, task: RemoteTask) -> None:
        """``PeerLink.cancel``."""
        try:
            session = await self._session(peer)
            found = [task.task_id] if task.task_id else await _begun(session, task.context_id)
            for task_id in found:
                await session.cancel_task(task_id)
        except (TaskNotCancelableError, TaskNotFoundError):
            return  # it is over already
        except A2AError as error:
            raise SubletError(
                LocalCode.UNAVAILABLE, f"{peer.name} did not cancel", it_says(error.message), from_peer=True
            ) from error

    async def fail(self, peer: PeerAddress, task: RemoteTask, message: Error) -> None:
        """``PeerLink.fail``."""
        try:
            session = await self._verified(peer)
            await session.send(self._request(peer, message, task))
        except TaskNotFoundError:
            return  # it is over already
        except A2AError as error:
            raise SubletError(
                LocalCode.UNAVAILABLE, f"{peer.name} did not take the error", it_says(error.message), from_peer=True
            ) from error

    async def agents(self, peer: PeerAddress) -> list[AgentView]:
        """``PeerLink.agents``."""
        session = await self._session(peer)
        return offered_agents(await session.card())

    async def bus(self, peer: PeerAddress) -> BusAddress | None:
        """``PeerLink.bus``."""
        session = await self._session(peer)
        # Who asks where a bus is may have lost it: a peer that was started again has another port than it said before.
        return offered_bus(await session.card(anew=True))

    async def tell_moved(self, peer: PeerAddress, moved: Moved) -> None:
        """``PeerLink.tell_moved``."""
        session = await self._verified(peer)
        await session.post(MOVED_PATH, dataclasses.asdict(moved))

    async def pair(self, url: str, request: PairRequest, *, tls_fingerprint: str | None) -> PairReply:
        """``PeerLink.pair``."""
        certificate = None
        if tls_fingerprint is not None:
            certificate = await fetch_certificate(url, tls_fingerprint)
        async with open_client(url, certificate, None) as client:
            try:
                response = await client.post(url.rstrip("/") + PAIR_PATH, json=dataclasses.asdict(request))
            except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
                raise SubletError(
                    LocalCode.PEER_UNREACHABLE, f"can't reach {url}: {error}", "Is the daemon there still running?"
                ) from error
        if response.status_code != httpx.codes.OK:
            code, said, hint = told(response)
            raise SubletError(
                error_code(code) or LocalCode.PEER_UNREACHABLE,
                said or f"{url} answers with HTTP {response.status_code}",
                hint or "Make a new link with `sublet pair` there.",
                from_peer=bool(said or hint),
            )
        try:
            return _REPLY.validate_json(response.content, strict=True)
        except ValidationError as error:
            raise SubletError(
                LocalCode.PEER_UNREACHABLE, f"{url} answers, but not as Sublet does", "Check the link."
            ) from error

    async def aclose(self) -> None:
        """``PeerLink.aclose``."""
        while self._sessions:
            await self._sessions.popitem()[1].aclose()

    def _answer(self, peer: PeerAddress, message: Invite, task: Task) -> tuple[RemoteTask, Accept | Error]:
        if not _REMOTE_ID.fullmatch(task.id) or not _REMOTE_ID.fullmatch(task.context_id):
            raise SubletError(LocalCode.PEER_UNREACHABLE, f"{peer.name} names its task oddly", "Update the peer.")
        reader = AnswerReader(message.delegation_id, peer.public_key, self._fingerprint)
        remote = RemoteTask(task.id, task.context_id)
        end = reader.end(task)
        if isinstance(end, Error):
            return remote, end
        accept = reader.accept(task) if end is None else None
        if accept is None:
            raise SubletError(
                LocalCode.PEER_UNREACHABLE,
                f"{peer.name} answered INVITE with neither ACCEPT nor ERROR",
                "Update the peer.",
            )
        return remote, accept

    def _request(
        self, peer: PeerAddress, message: Invite | Start | Error, task: RemoteTask | None
    ) -> SendMessageRequest:
        part = to_part(signed(message, self._key, fingerprint_of(peer.public_key)))
        return SendMessageRequest(
            message=Message(
                message_id=str(uuid.uuid4()),
                role=Role.ROLE_USER,
                task_id=task.task_id if task else "",
                context_id=task.context_id if task else message.delegation_id,
                parts=[part],
                extensions=[AWCP_URI],
            )
        )

    async def _verified(self, peer: PeerAddress) -> PeerSession:
        session = await self._session(peer)
        await session.card()
        return session

    async def _session(self, peer: PeerAddress) -> PeerSession:
        session = self._sessions.get(peer)
        if session is None:
            if len(self._sessions) >= MAX_SESSIONS:
                # Whoever still uses it asks for a new one with the next attempt.
                await self._sessions.popitem(last=False)[1].aclose()
            audience = fingerprint_of(peer.public_key)
            session = PeerSession(peer, PeerAuth(self._key, self._node_id, self._fingerprint, audience, self._home))
            self._sessions[peer] = session
        return session


def refusal(delegation_id: str, error: A2AError) -> Error:
    """Return the ERROR that the peer's A2A error stands for; without one of our codes it is ``DECLINED``."""
    data = error.data if isinstance(error.data, dict) else {}
    code = str(data.get("code"))
    return Error(
        delegation_id=delegation_id,
        code=ErrorCode(code) if code in ErrorCode.__members__ else ErrorCode.DECLINED,
        message=clean_line(str(data.get("message") or error.message)),
        hint=clean_line(str(data.get("hint") or "")),
    )


def _was_connected(error: SubletError) -> bool:
    broken = httpx.ReadError | httpx.WriteError | httpx.RemoteProtocolError
    return any(isinstance(cause, broken) for cause in causes(error))


async def _begun(session: PeerSession, context_id: str) -> list[str]:
    """Return the open tasks of a delegation whose INVITE nobody has answered.

    A peer that was silent may be asked this before it comes to the INVITE, which then would hold a slot for nobody.

    Raises:
        SubletError: ``PEER_UNREACHABLE`` where it has not answered even that.
    """
    answered = False
    with anyio.move_on_after(BEGINNING_SECONDS):
        while not (known := await session.tasks_of(context_id)):
            answered = True
            await anyio.sleep(_LOOK_SECONDS)
        return [task_id for task_id, is_open in known.items() if is_open]
    if not answered:
        raise SubletError(
            LocalCode.PEER_UNREACHABLE, f"the peer said nothing within {BEGINNING_SECONDS:.0f} s", from_peer=False
        )
    return []
