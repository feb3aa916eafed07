"""What a delegator says while the work runs: more time by agreement of both sides, and further prompts (DESIGN 4.11).

The core decides whose turn it is and what is agreed on; this asks policy, sends, and tells whoever has asked.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import time
from collections.abc import Awaitable, Callable

import anyio

from sublet.daemon.api.reports import refusal
from sublet.daemon.lending.keeper import DelegationKeeper
from sublet.daemon.lending.lent_access import LentAccess
from sublet.daemon.ports.peer_link import PeerAddress, PeerLink, RemoteTask
from sublet.daemon.storage.records import FollowUpRecord
from sublet.protocol.chain import Chain
from sublet.protocol.delegation.events import (
    CallerLeft,
    ExtensionAllowed,
    ExtensionAnswered,
    FollowUpAnswered,
    FollowUpDue,
    FollowUpSaid,
    FollowUpUnheard,
)
from sublet.protocol.delegation.outputs import Answer, AskPolicy, Deliver, DeliverLater, Output, Refuse, SendExtension
from sublet.protocol.delegation.state import ExtensionAsked
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.lifecycle import DelegationState
from sublet.protocol.messages import Error, FollowUp, Start

SAY_SECONDS = 10.0
"""How long a caller waits to hear whether the peer has taken a follow-up; it is delivered later all the same."""

ARRANGED = frozenset(
    {DelegationState.CREATED, DelegationState.INVITED, DelegationState.ACCEPTED, DelegationState.STARTED}
)
BEGIN_SECONDS = 5.0
"""How long a caller waits for work to begin that is being arranged, as one does who delegates and goes on at once."""

Approve = Callable[[int], Awaitable[None]]
RestOf = Callable[[Chain], float]


class Steering:
    """Extends and follows up one delegation.

    Args:
        keeper: drives the core.
        access: what the peer may reach.
        peer: who works.
        link: how it is told.
    """

    def __init__(self, keeper: DelegationKeeper, access: LentAccess, peer: PeerAddress, link: PeerLink) -> None:
        self._keeper = keeper
        self._access = access
        self._peer = peer
        self._link = link
        self._keys = itertools.count(1)
        self._callers: dict[str, asyncio.Queue[Output]] = {}
        self._to_deliver: asyncio.Queue[Deliver | DeliverLater] = asyncio.Queue()
        self._told = asyncio.Event()

    def perform(self, output: Output) -> None:
        """Have an output of the core done by whoever it is for."""
        match output:
            case Deliver() | DeliverLater():
                self._to_deliver.put_nowait(output)
            case AskPolicy(key=key) | SendExtension(key=key) | Answer(key=key) | Refuse(key=key):
                if (caller := self._callers.get(key)) is not None:
                    caller.put_nowait(output)

    def changed(self) -> None:
        """Let whoever waits for news look."""
        told, self._told = self._told, asyncio.Event()
        told.set()

    async def begun(self) -> None:
        """Wait a while for the work to begin, where it has not yet."""
        with anyio.move_on_after(BEGIN_SECONDS):
            while self._keeper.state.state in ARRANGED:
                await self._told.wait()

    async def extend(self, seconds: int, max_ttl_seconds: int, approve: Approve, rest_of: RestOf) -> None:
        """Lengthen the lease by ``seconds``, or by what is left of them by both sides' limits.

        The executor's word is journalled there first, then ours here; a lease that ends meanwhile stays ended.

        Args:
            seconds: more time.
            max_ttl_seconds: how long any lease may be here, from its start.
            approve: asks policy whether this one may be so many seconds long, and raises where it may not.
            rest_of: tells for how long the work of an agent that has called still has its own lease.

        Raises:
            SubletError: ``CONFLICT`` where nothing runs that could be extended, ``POLICY_DENIED`` at our limit,
                ``LEASE_OVER`` where the agent that asked for it has no more time itself, ``DECLINED`` by the peer, or
                ``PEER_UNREACHABLE``.
        """
        chain = self._keeper.record.chain
        within = None if chain is None else time.time() + rest_of(chain.chain())
        key = f"extension {next(self._keys)}"
        wanted = self._callers[key] = asyncio.Queue()
        try:
            await self._keeper.feed(ExtensionAsked(key, seconds, max_ttl_seconds, within))
            while not isinstance(output := await wanted.get(), Answer):
                match output:
                    case Refuse(_, error):
                        raise error
                    case AskPolicy(_, more, ttl_seconds):
                        await self._keeper.feed(ExtensionAllowed(key, more, await _error_of(approve(ttl_seconds))))
                    case SendExtension(_, more):
                        await self._keeper.feed(await self._extended(key, more))
        finally:
            del self._callers[key]
            await self._keeper.feed(CallerLeft(key))

    async def _extended(self, key: str, more: int) -> ExtensionAnswered:
        """Ask the executor for ``more`` seconds, and return what it says."""
        start = self._access.start(more=more)
        asked = start.sublet.remaining_seconds or 0
        try:
            answer = await self._link.renew(self._peer, self._task(), start)
        except SubletError as error:
            return ExtensionAnswered(key, more, error=error)
        if isinstance(answer, Error):
            return ExtensionAnswered(key, more, error=refusal(answer, self._peer.name))
        return ExtensionAnswered(key, more, asked, answer.remote_constraints.max_ttl_seconds or 0)

    async def say(self, follow_up: FollowUp) -> None:
        """Give the executor's agent a further prompt, once it has done what it does. Saying one twice is harmless.

        Raises:
            SubletError: ``CONFLICT`` where nothing runs, or the id is that of another prompt; ``DECLINED`` where the
                peer does not take it.
        """
        digest = hashlib.sha256(follow_up.prompt.encode()).hexdigest()
        for output in await self._keeper.feed(FollowUpSaid(follow_up.id, follow_up.prompt, digest)):
            if isinstance(output, Refuse) and output.key == follow_up.id:
                raise output.error
        with anyio.move_on_after(SAY_SECONDS):
            while (known := self._find(follow_up.id)) is not None and known.state == "pending":
                await self._told.wait()
        if known is not None and known.state == "refused":
            raise SubletError(ErrorCode.DECLINED, known.why, "Delegate again.", from_peer=True)

    async def deliver(self) -> None:
        """Send what the core wants delivered, until cancelled."""
        while True:
            match await self._to_deliver.get():
                case Deliver(said):
                    start = self._access.start(FollowUp(id=said.id, prompt=said.prompt))
                    await self._keeper.feed(await self._delivered(said.id, start))
                case DeliverLater(seconds):
                    await anyio.sleep(seconds)
                    await self._keeper.feed(FollowUpDue())

    async def _delivered(self, follow_up_id: str, start: Start) -> FollowUpAnswered | FollowUpUnheard:
        try:
            answer = await self._link.renew(self._peer, self._task(), start)
        except SubletError as error:
            if error.code == LocalCode.PEER_UNREACHABLE:
                return FollowUpUnheard(follow_up_id)
            return FollowUpAnswered(follow_up_id, error.message)
        why = str(refusal(answer, self._peer.name).message) if isinstance(answer, Error) else ""
        return FollowUpAnswered(follow_up_id, why)

    def _task(self) -> RemoteTask:
        record = self._keeper.record
        return RemoteTask(record.task_id or "", record.context_id or record.id)

    def _find(self, follow_up_id: str) -> FollowUpRecord | None:
        return next((one for one in self._keeper.record.follow_ups if one.id == follow_up_id), None)


async def _error_of(call: Awaitable[None]) -> SubletError | None:
    """Return the refusal in which ``call`` ends, if it does."""
    try:
        await call
    except SubletError as error:
        return error
    return None
