"""The calling side of A2A, as the daemon needs it: links to peers, and to agents elsewhere by plain text."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from sublet.daemon.api.peers import AgentView
from sublet.daemon.ports.given_to_a2a import (
    Moved,
    PairReply,
    PairRequest,
)
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import SubletError
from sublet.protocol.messages import Accept, Done, Error, Invite, Progress, Start


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """How to call a paired daemon: its A2A URL, its pinned raw Ed25519 key and, for https, its pinned certificate."""

    name: str
    a2a_url: str
    public_key: bytes
    tls_certificate: str | None


@dataclass(frozen=True, slots=True)
class RemoteTask:
    """Where a delegation lives on the peer."""

    task_id: str
    context_id: str


class NotConnected(SubletError):
    """Nobody listened where the peer should: nothing was sent, so that trying again is safe."""


@dataclass(frozen=True, slots=True)
class Silence:
    """The peer can't be heard, for this ``reason``; an empty one tells that it is heard again."""

    reason: str


Update = Progress | Done | Error | Silence


BUS_WIRE: Final = 5
"""5: rooms are sealed for their members by default, files too, and an entity has several devices; who knows only some
of this would hold up the others. 4: on the link of a peer one pattern is declared, and ``@`` is escaped in keys;
what is purged is a document of its own, which others do not know and would bring back. 3: rooms are compared by
digest trees; refs stand by ranks, and have the fields of their schema alone. 2: mutual TLS by pinned keys
everywhere. 1 had none on one machine, and another name for each authority."""


@dataclass(frozen=True, slots=True)
class BusAddress:
    """Where a daemon's message bus is on its host.

    Args:
        port: its port.
        wire: which form its links have; only equal ones reach each other.
        version: of Sublet there, in its own words; empty where it has not said.
    """

    port: int
    wire: int = BUS_WIRE
    version: str = ""


class PeerLink(Protocol):
    """The outgoing control plane to one peer (AWCP over A2A, DESIGN 4.2).

    Every message is signed and every answer verified against the pinned key. A peer that refuses is an
    ``Error`` value; what keeps us from reaching it is a ``SubletError``.
    """

    async def invite(self, peer: PeerAddress, message: Invite) -> tuple[RemoteTask, Accept | Error]:
        """Send INVITE and return the task with the answer.

        Raises:
            NotConnected: no connection could be made.
            SubletError: ``PEER_UNREACHABLE``, ``KEY_CHANGED`` or ``AUTH_FAILED``.
        """

    def run(self, peer: PeerAddress, task: RemoteTask, message: Start) -> AsyncGenerator[Update, None]:
        """Send START and yield progress, then exactly one DONE or ERROR.

        A broken stream is told of once, then re-read and resubscribed with backoff until the caller stops iterating;
        a stream that ends without a terminal state is never taken for an end.

        Raises:
            SubletError: ``PEER_UNREACHABLE`` where START itself can't be delivered; ``KEY_CHANGED``; ``AUTH_FAILED``.
        """

    def follow(self, peer: PeerAddress, task: RemoteTask, message: Callable[[], Start]) -> AsyncGenerator[Update, None]:
        """Go along with a task that an earlier process has started: as ``run``, however it stands and however late.

        Where it works, START is sent again to renew it; where it still waits for START, it is started; where it has
        ended while nobody listened, that end is yielded. A peer that can't be reached is tried until the caller stops
        iterating.

        Args:
            peer: who does the work.
            task: where.
            message: returns the START of that moment.

        Raises:
            SubletError: ``KEY_CHANGED`` or ``AUTH_FAILED``.
        """

    async def renew(self, peer: PeerAddress, task: RemoteTask, message: Start) -> Accept | Error:
        """Send START again to work that runs, to extend it or to give it a follow-up, and return the answer.

        Raises:
            SubletError: ``PEER_UNREACHABLE``, ``KEY_CHANGED`` or ``AUTH_FAILED``; it may have arrived all the same.
        """

    async def cancel(self, peer: PeerAddress, task: RemoteTask) -> None:
        """Ask the peer to stop; idempotent, and quiet where the task is already over.

        Where ``task`` has no id, since INVITE was not answered, what the peer has of its delegation is stopped.

        Raises:
            SubletError: ``PEER_UNREACHABLE``.
        """

    async def fail(self, peer: PeerAddress, task: RemoteTask, message: Error) -> None:
        """Send ERROR for a task that runs; its stream then ends with the peer's own ERROR. Quiet where it is over.

        Raises:
            SubletError: ``PEER_UNREACHABLE``, or what the peer answers instead.
        """

    async def agents(self, peer: PeerAddress) -> list[AgentView]:
        """Return the agents that the peer's card offers, its signature checked against the pinned key.

        Raises:
            SubletError: ``PEER_UNREACHABLE`` or ``KEY_CHANGED``.
        """

    async def bus(self, peer: PeerAddress) -> BusAddress | None:
        """Return where the peer's bus is on its host, as its signed card says; None where it has none.

        Raises:
            SubletError: ``PEER_UNREACHABLE`` or ``KEY_CHANGED``.
        """

    async def tell_moved(self, peer: PeerAddress, moved: Moved) -> None:
        """Tell a peer where we are called from now on.

        Raises:
            SubletError: ``PEER_UNREACHABLE``, or what the peer refuses it with.
        """

    async def pair(self, url: str, request: PairRequest, *, tls_fingerprint: str | None) -> PairReply:
        """Post ``request`` to the pairing route at ``url``, whose certificate must have ``tls_fingerprint``.

        Raises:
            SubletError: ``PEER_UNREACHABLE``, ``KEY_CHANGED`` (wrong certificate) or ``TOKEN_INVALID``.
        """

    async def aclose(self) -> None:
        """Close all connections."""


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of what an agent elsewhere answers, and the context of the conversation there."""

    text: str
    context: str


class TextLink(Protocol):
    """Plain text to agents elsewhere. Closing a generator before its end cancels the work there."""

    def say(
        self, peer: PeerAddress, text: str, metadata: Mapping[str, JsonValue], context: str | None
    ) -> AsyncGenerator[TextPiece, None]:
        """Send ``text`` to a paired daemon and yield what is answered, until its task has ended.

        Args:
            peer: whom.
            text: the message.
            metadata: of the message, such as the signed chain.
            context: an earlier conversation to go on with.

        Raises:
            SubletError: ``PEER_UNREACHABLE``, ``KEY_CHANGED``, or ``TASK_FAILED`` with what it says.
        """

    def say_at(self, url: str, token: str, text: str, context: str | None) -> AsyncGenerator[TextPiece, None]:
        """Send ``text`` to the A2A agent at an https ``url`` on a public address: as ``say``.

        Raises:
            SubletError: as ``say``.
        """
