"""What the daemon needs of the faces above it, as interfaces: they implement it, the composition root passes it in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

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


Update = Progress | Done | Error


class PeerLink(Protocol):
    """The outgoing control plane to one peer (AWCP over A2A, DESIGN 4.2).

    Every message is signed and every answer verified against the pinned key. A peer that refuses is an
    ``Error`` value; what keeps us from reaching it is a ``SubletError``.
    """

    async def invite(self, peer: PeerAddress, message: Invite) -> tuple[RemoteTask, Accept | Error]:
        """Send INVITE and return the task with the answer.

        Raises:
            SubletError: ``PEER_UNREACHABLE``, ``KEY_CHANGED`` or ``AUTH_FAILED``.
        """

    def run(self, peer: PeerAddress, task: RemoteTask, message: Start) -> AsyncIterator[Update]:
        """Send START and yield progress, then exactly one DONE or ERROR.

        A broken stream is re-read and resubscribed with backoff until the caller stops iterating; a stream that
        ends without a terminal state is never taken for an end.
        """

    async def cancel(self, peer: PeerAddress, task: RemoteTask) -> None:
        """Ask the peer to stop; idempotent, and quiet where the task is already over.

        Raises:
            SubletError: ``PEER_UNREACHABLE``.
        """
