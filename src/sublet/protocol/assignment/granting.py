"""How much an executor grants: ACCEPT narrows INVITE, START takes no more than ACCEPT, a renewal no more than START.

Rule: each step takes from what the step before it gave and never adds to it; only a renewal that asks for a later end
than was agreed gains time, and that within the executor's own limit, counted from the beginning of the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sublet.protocol.bounds import MAX_TTL_SECONDS, AccessMode
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Accept, Invite, Start
from sublet.protocol.text import clean_line
from sublet.protocol.times import Now, rfc3339_of, unix_seconds

RESERVED_SECONDS: Final = 60.0
"""How long an accepted INVITE waits for its START at most."""
START_GRACE_SECONDS: Final = 5.0


def start_seconds(ttl_seconds: int, reserved: float = RESERVED_SECONDS) -> float:
    """Return for how many seconds an INVITE of that lease waits for its START before its slot is given to others.

    A slot is not kept for much longer than the work itself could hold it.
    """
    return min(reserved, ttl_seconds + START_GRACE_SECONDS)


def same_invite(first: Invite, second: Invite) -> bool:
    """Tell whether two INVITEs ask for the same, whatever their signatures."""
    return _unsigned(first) == _unsigned(second)


def _unsigned(message: Invite) -> Invite:
    return message.model_copy(update={"sublet": message.sublet.model_copy(update={"signature": None})})


def longest(invite: Invite, max_ttl_seconds: int) -> int:
    """Return for how many seconds an executor that allows ``max_ttl_seconds`` accepts ``invite`` at most."""
    chain = invite.sublet.chain
    rest = MAX_TTL_SECONDS if chain is None or chain.ttl is None else max(1, chain.ttl)
    return min(invite.lease.ttl_seconds, max_ttl_seconds, rest)


def narrowed(invite: Invite, accept: Accept) -> Accept:
    """Return ``accept`` with no more access and no more time than ``invite`` asks for."""
    said = accept.remote_constraints
    mode: AccessMode = "ro" if "ro" in (said.accepted_access_mode, invite.lease.access_mode) else "rw"
    constraints = said.model_copy(
        update={
            "accepted_access_mode": mode,
            "max_ttl_seconds": longest(invite, said.max_ttl_seconds or MAX_TTL_SECONDS),
        }
    )
    return accept.model_copy(update={"remote_constraints": constraints})


def seconds_left(accept: Accept, start: Start, now: Now) -> float:
    """Return for how long START gives access, never more than was accepted.

    Raises:
        SubletError: ``START_EXPIRED``, ``AUTH_FAILED`` or ``DECLINED`` (AWCP 4.3, 4.5).
    """
    accepted = accept.remote_constraints
    if accepted.accepted_access_mode == "ro" and start.lease.access_mode == "rw":
        raise SubletError(ErrorCode.DECLINED, "START widens the access from ro to rw", "Send what was accepted.")
    if start.mount.transport != accept.sublet.transport:
        raise SubletError(
            ErrorCode.DECLINED,
            f"START says transport {clean_line(start.mount.transport, 40)!r}, and "
            f"{accept.sublet.transport!r} was agreed on",
            "Send what was accepted.",
        )
    return min(asked_seconds(start, now), float(accepted.max_ttl_seconds or MAX_TTL_SECONDS))


def asked_seconds(start: Start, now: Now) -> float:
    """Return for how long START gives access by its own words.

    Raises:
        SubletError: ``START_EXPIRED`` or ``AUTH_FAILED``.
    """
    remaining = start.sublet.remaining_seconds
    # Our clocks may differ by more than the lease is long, so what the peer counted wins where it says it.
    seconds = unix_seconds(start.lease.expires_at) - now.wall if remaining is None else float(remaining)
    if seconds <= 0:
        raise SubletError(ErrorCode.START_EXPIRED, "the lease was over before START arrived", "Delegate again.")
    if start.sublet.host_key is None:
        raise SubletError(
            ErrorCode.AUTH_FAILED,
            "START names no host key, so the server could be anybody",
            "Send sublet.host_key.",
        )
    return seconds


@dataclass(frozen=True, slots=True)
class GrantedTime:
    """What a renewal comes to.

    Args:
        seconds: for how long the work goes on from ``at``.
        asked: for how long START asked at ``at``.
        at: when that was counted, on the steady clock.
    """

    seconds: float
    asked: float
    at: float

    @property
    def until(self) -> float:
        """When the work ends, on the steady clock."""
        return self.at + self.seconds

    def within(self, other: GrantedTime) -> GrantedTime:
        """Return this grant, ending no later than ``other``."""
        return GrantedTime(min(self.seconds, other.until - self.at), self.asked, self.at)

    def expires_at(self, start: Start) -> str:
        """Return when the lease ends by the delegator's clock, as START says less what was not granted."""
        return rfc3339_of(unix_seconds(start.lease.expires_at) - (self.asked - self.seconds))


def renewal(
    start: Start, *, expires_at: str | None, began: float, deadline: float, longest: float, asked: float, now: Now
) -> GrantedTime:
    """Return what a renewal is granted.

    Args:
        start: the START that came again.
        expires_at: when the lease ends by the delegator's clock, as agreed so far.
        began: when the work began on the steady clock, since limits count from there.
        deadline: when it ends on the steady clock, as agreed so far.
        longest: seconds that any work may take here.
        asked: seconds for which START asks now.
        now: the time.
    """
    granted = min(asked, deadline - now.steady)
    if expires_at is None or unix_seconds(start.lease.expires_at) > unix_seconds(expires_at):
        granted = max(granted, min(asked, longest - (now.steady - began)))
    return GrantedTime(granted, asked, now.steady)
