"""What the daemon offers the A2A face. It translates to and from it and decides nothing itself.

Failures are ``SubletError``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from sublet.policy.decision import Subject
from sublet.policy.request_rules import NOT_NARROWED, Narrowing
from sublet.protocol.chain import Chain
from sublet.protocol.errors import SubletError
from sublet.protocol.messages import Accept, Done, Invite, Progress, Start


@dataclass(frozen=True, slots=True)
class KnownPeer:
    """A paired daemon as the A2A face authenticates it."""

    name: str
    public_key: bytes
    fingerprint: str


class ExecutorApi(Protocol):
    """The executor role, as the A2A face calls it. A refusal is a ``SubletError`` with an ``ErrorCode``."""

    async def invite(self, message: Invite, peer: KnownPeer, *, source_host: str) -> Accept:
        """Answer INVITE. Inviting twice with the same delegation id gives the same answer while it is pending.

        Args:
            message: the INVITE.
            peer: who sent it, authenticated.
            source_host: IP address from which it came; the only host besides the peer's own that may be dialled.
        """

    def run(self, message: Start, peer: KnownPeer, *, source_host: str) -> AsyncGenerator[Progress | Done, None]:
        """Mount, work, unmount: yield progress and at last one DONE; raise ``SubletError`` instead where it fails.

        Closing or cancelling the generator ends the task and unmounts before it returns.
        """

    async def renew(self, message: Start, peer: KnownPeer, *, source_host: str) -> Accept:
        """Go on with work that runs, as a START says that came again: its endpoint, its time, its follow-up.

        Args:
            message: the START; of an older generation than was heard before it is refused.
            peer: who sent it, authenticated.
            source_host: IP address from which it came, which is dialled from now on.

        Returns:
            ACCEPT, whose ``max_ttl_seconds`` is for how long from now the executor agrees to work.

        Raises:
            SubletError: ``DECLINED`` where nothing runs any more or it is not granted.
        """

    async def cancel(self, delegation_id: str, peer: KnownPeer) -> None:
        """Stop a delegation in whatever state it is; idempotent."""

    async def wind_down(self, delegation_id: str, peer: KnownPeer, error: SubletError, seconds: float) -> None:
        """Have running work end within ``seconds``, as failed for ``error``, whatever it comes to; idempotent.

        The agent goes on until then, so that it can see what went wrong and say so.
        """

    async def check_invite(self, message: Invite, peer: KnownPeer) -> None:
        """Raise ``DECLINED`` where the id of ``message`` belongs to an INVITE of other content, or of another peer."""

    async def check_owner(self, delegation_id: str, peer: KnownPeer) -> None:
        """Raise ``DECLINED`` unless ``delegation_id`` is an assignment of ``peer``."""


@dataclass(frozen=True, slots=True)
class AskedBack:
    """A question in place of an answer: what is asked goes on once it is answered."""

    question: str


class MessageApi(Protocol):
    """Plain A2A messages, from clients that know nothing of AWCP."""

    def answer(
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
        """Have the supervisor see to ``text`` and yield what is said, piece by piece; a question is the last one.

        Args:
            text: the message.
            caller: who sent it, for policy.
            context_id: the conversation it belongs to, which is a session of this owner's alone.
            owner: whose conversations these are.
            chain: who called until here, where another agent did.
            answers: whether it answers the question that the conversation waits with.
            narrowing: what the message leaves of what agents may call for it.
        """


@dataclass(frozen=True, slots=True)
class PairRequest:
    """What the caller of the pairing route sends.

    ``proof`` is an HMAC with the link's token and ``signature`` one by the caller's key, both over all the rest.
    """

    token_id: str
    node_id: str
    public_key: str
    a2a_url: str | None
    tls_certificate: str | None
    name_hint: str
    nonce: str
    proof: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class PairReply:
    """What the pairing route answers; ``proof`` shows that it knows the token, ``signature`` that it has the key."""

    node_id: str
    public_key: str
    a2a_url: str
    tls_certificate: str | None
    proof: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class Moved:
    """What a paired daemon tells of where it is called; ``signature``, by its pinned key, is over all the rest.

    ``at`` is Unix time in seconds, ``nonce`` is another one each time.
    """

    a2a_url: str
    tls_certificate: str | None
    at: int
    nonce: str
    signature: str = ""


class WhereaboutsApi(Protocol):
    """Where peers are, as the A2A face hears it from themselves."""

    async def moved(self, peer: KnownPeer, source_host: str, moved: Moved) -> None:
        """Call a peer from now on where it says that it is; ``source_host`` is the IP address that it calls from.

        Raises:
            SubletError: ``AUTH_FAILED`` or ``INVALID_ARGUMENT``: it does not count.
        """


class PairingApi(Protocol):
    """The answering half of pairing, as the A2A face calls it."""

    async def complete(self, request: PairRequest) -> PairReply:
        """Use up the token and pin the caller's key.

        Raises:
            SubletError: ``TOKEN_INVALID`` for an unknown, used or expired token or a wrong proof.
        """
