"""What a lender says while the work runs: more time by agreement of both sides, and further prompts (DESIGN 4.11)."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable

import anyio

from sublet.daemon.api.reports import prompt_view, refusal
from sublet.daemon.lending.agreement import resumable
from sublet.daemon.lending.keeper import DelegationKeeper, DelegationOver
from sublet.daemon.lending.lent_access import LentAccess
from sublet.daemon.ports import PeerAddress, PeerLink, RemoteTask
from sublet.daemon.storage.records import FollowUpRecord
from sublet.daemon.times import unix_seconds
from sublet.protocol.bounds import MAX_FOLLOW_UPS
from sublet.protocol.chain import Chain
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.lifecycle import DelegationState
from sublet.protocol.messages import Accept, Error, FollowUp, PromptState

FIRST_RETRY_SECONDS = 0.5
MAX_RETRY_SECONDS = 10.0
SAY_SECONDS = 10.0
"""How long a caller waits to hear whether the peer has taken a follow-up; it is delivered later all the same."""


Approve = Callable[[int], Awaitable[None]]
RestOf = Callable[[Chain], float]


class Steering:
    """Extends and follows up one delegation. Its renewals are sent one after the other.

    Args:
        keeper: writes the record.
        access: what the peer may reach.
        peer: who works.
        link: how it is told.
        extended: called with the seconds that the lease was extended by.
    """

    def __init__(
        self,
        keeper: DelegationKeeper,
        access: LentAccess,
        peer: PeerAddress,
        link: PeerLink,
        extended: Callable[[int], None],
    ) -> None:
        self._keeper = keeper
        self._access = access
        self._peer = peer
        self._link = link
        self._extended = extended
        self._turn = asyncio.Lock()
        self._said = asyncio.Event()
        self._told = asyncio.Event()

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
        async with self._turn:
            task = self._check()
            more = min(seconds, max_ttl_seconds - self._keeper.record.ttl_seconds)
            if more <= 0:
                raise SubletError(
                    LocalCode.POLICY_DENIED,
                    f"a lease may last {max_ttl_seconds} s here, and this one does already",
                    "Raise max_ttl_seconds in policy.json, or delegate again.",
                )
            more = self._within_the_callers(more, rest_of)
            await approve(self._keeper.record.ttl_seconds + more)
            asked = self._access.start(more=more)
            assert asked.sublet.remaining_seconds is not None
            answer = await self._link.renew(self._peer, task, asked)
            if isinstance(answer, Error):
                raise refusal(answer, self._peer.name)
            agreed = answer.remote_constraints.max_ttl_seconds or 0
            gained = min(more, more - (asked.sublet.remaining_seconds - agreed))
            if gained <= 0:
                raise SubletError(
                    ErrorCode.DECLINED,
                    f"{self._peer.name} agrees to no more time than the lease has",
                    "Its owner can raise max_ttl_seconds there; or delegate again.",
                )
            try:
                await self._keeper.extend(gained)
            except DelegationOver:
                raise self._over() from None
            # Nothing is awaited between the journal and this.
            self._access.extend(gained)
            self._extended(gained)

    def _within_the_callers(self, more: int, rest_of: RestOf) -> int:
        """Return how much of ``more`` seconds keeps the lease within that of the agent which asked for it, if one did.

        Raises:
            SubletError: ``LEASE_OVER``.
        """
        record = self._keeper.record
        if record.chain is None or record.expires_at is None:
            return more
        chain = record.chain.chain()
        within = int(rest_of(chain) - (unix_seconds(record.expires_at) - time.time()))
        if within <= 0:
            raise SubletError(
                LocalCode.LEASE_OVER,
                f"the lease of the agent that asked for this one ends no later: {chain.shown()}",
                "Extend that one first.",
            )
        return min(more, within)

    async def say(self, follow_up: FollowUp) -> None:
        """Give the executor's agent a further prompt, once it has done what it does. Saying one twice is harmless.

        Raises:
            SubletError: ``CONFLICT`` where nothing runs, or the id is that of another prompt; ``DECLINED`` where the
                peer does not take it.
        """
        self._check()
        known, digest = self._find(follow_up.id), hashlib.sha256(follow_up.prompt.encode()).hexdigest()
        if known is None:
            if len(self._keeper.record.follow_ups) >= MAX_FOLLOW_UPS:
                raise SubletError(
                    LocalCode.CONFLICT, f"{MAX_FOLLOW_UPS} follow-ups were sent already", "Delegate again."
                )
            try:
                await self._keeper.follow_up(FollowUpRecord(id=follow_up.id, prompt=follow_up.prompt, digest=digest))
            except DelegationOver:
                raise self._over() from None
            self._said.set()
        elif known.digest != digest:
            raise SubletError(
                LocalCode.CONFLICT,
                f"the follow-up {follow_up.id} was sent already, with another prompt",
                "Use another id for another follow-up.",
            )
        with anyio.move_on_after(SAY_SECONDS):
            while (known := self._find(follow_up.id)) is not None and known.state == "pending":
                await self._told.wait()
        if known is not None and known.state == "refused":
            raise SubletError(ErrorCode.DECLINED, known.why, "Delegate again.", from_peer=True)

    async def deliver(self) -> None:
        """Send what was said and has not been taken yet, also by an earlier process, until cancelled."""
        wait = FIRST_RETRY_SECONDS
        while True:
            said = next((one for one in self._keeper.record.follow_ups if one.state == "pending"), None)
            if said is None or self._keeper.record.state is not DelegationState.RUNNING:
                await self._said.wait()
                self._said.clear()
                continue
            why = ""
            try:
                async with self._turn:
                    start = self._access.start(FollowUp(id=said.id, prompt=said.prompt))
                    answer = await self._link.renew(self._peer, self._check(), start)
                if not isinstance(answer, Accept):
                    why = str(refusal(answer, self._peer.name).message)
            except SubletError as error:
                if error.code == LocalCode.PEER_UNREACHABLE:
                    await anyio.sleep(wait)
                    wait = min(2 * wait, MAX_RETRY_SECONDS)
                    continue
                why = error.message
            wait = FIRST_RETRY_SECONDS
            await self._keeper.follow_up(said.settled("refused" if why else "delivered", why))
            self._tell()

    async def heard(self, prompts: Iterable[PromptState]) -> None:
        """Journal what the executor says of follow-ups; of one that was never said nothing is kept."""
        for prompt in prompts:
            if (said := self._find(prompt.follow_up_id)) is not None:
                why = prompt_view(prompt).ended() if prompt.state == "failed" else ""
                await self._keeper.follow_up(said.settled(prompt.state, why))
                self._tell()

    def _tell(self) -> None:
        told, self._told = self._told, asyncio.Event()
        told.set()

    def woken(self) -> None:
        """Look again whether there is anything to deliver."""
        self._said.set()

    def _find(self, follow_up_id: str | None) -> FollowUpRecord | None:
        return next((one for one in self._keeper.record.follow_ups if one.id == follow_up_id), None)

    def _check(self) -> RemoteTask:
        """Return where the work runs.

        Raises:
            SubletError: ``CONFLICT`` where none runs, or the peer can't be told.
        """
        record = self._keeper.record
        if self._keeper.over:
            raise self._over()
        if record.state is not DelegationState.RUNNING or record.task_id is None or record.context_id is None:
            raise SubletError(
                LocalCode.CONFLICT, f"the work has not begun yet; it is {record.state}", "Try again once it runs."
            )
        if not resumable(record):
            raise SubletError(
                LocalCode.CONFLICT, f"{self._peer.name} can't be told anything while it works", "Delegate again."
            )
        return RemoteTask(record.task_id, record.context_id)

    def _over(self) -> SubletError:
        return SubletError(
            LocalCode.CONFLICT, f"{self._keeper.record.id} is over: {self._keeper.record.state}", "Delegate again."
        )
