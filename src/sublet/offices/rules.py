"""The rules of offices: who joins, leaves, switches and is told (A2C-SMCP "rooms").

Rules:

- An office holds one Agent at most, and each of its names once.
- A connection sits where one of its tokens is for, and nowhere else. What it asks about any other office is answered
  without looking whether that office exists.
- A Computer that joins elsewhere leaves first; an Agent has to leave by itself.
- A connection that joins with the token of one that sits there already takes its place.
- Others hear of a member after it has entered, and before it has left.

No sockets and no clock: each call changes the state at once and returns what has to be sent, in order.

Weak: state is in memory alone, so after a restart all members join again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from sublet.offices.seats import Cut, Effect, Member, Seat, Tell
from sublet.protocol.canonical import JsonValue
from sublet.protocol.offices.names import UPDATES, Notice, Role, ServerEvent
from sublet.protocol.offices.requests import Cancel, Join, ListRoom

MAX_MEMBERS: Final = 256
"""Of one office: each change of a member is told to all others."""
MAX_WAITING: Final = 8
"""Connections with one token that sit nowhere: some of a client that comes again and again may be half open."""
NOT_YOURS: Final = "This token is not for that office, role and name"
NOT_THERE: Final = "You are not in that office"
LEAVE_FIRST: Final = "Leave your office before you join another"
HAS_AGENT: Final = "The office already has an agent"
FULL: Final = "The office is full"
LEFT: Final = "it has asked to"
SWITCHED: Final = "it has joined another office"
GONE: Final = "its connection has ended"
REPLACED: Final = "another connection has come with the same token"
CROWDED: Final = "too many connections have come with the same token"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of a request: whether it is granted, else why not; and what has to be sent."""

    ok: bool
    why: str = ""
    effects: tuple[Effect, ...] = ()


def nobody_told(seat: Seat, why: str | None) -> None:
    """Take no note of who joins and leaves."""


class Offices:
    """All connections and where they sit.

    Args:
        moved: is told who has joined an office, or has left it for which reason.
    """

    def __init__(self, moved: Callable[[Seat, str | None], None] = nobody_told) -> None:
        self._moved = moved
        self._members: dict[str, Member] = {}
        self._seated: dict[str, dict[str, Member]] = {}
        self._holders: dict[str, dict[str, Member]] = {}
        """By the id of a token, its connections in the order in which they came."""

    def connected(self, sid: str, seats: Sequence[Seat]) -> bool:
        """Take a connection with its tokens; False where they are of two roles, or none."""
        if not seats or len({seat.role for seat in seats}) != 1:
            return False
        self._members[sid] = member = Member(sid, tuple(seats))
        for seat in seats:
            self._holders.setdefault(seat.token_id, {})[sid] = member
        return True

    def crowded(self, sid: str) -> tuple[Effect, ...]:
        """End the oldest that sit nowhere, where there are too many with a token of a connection that has just come."""
        ended: dict[str, Member] = {}
        for seat in self._members[sid].seats:
            waiting = [one for one in self._holders[seat.token_id].values() if one.seat is None]
            ended |= {one.sid: one for one in waiting[: max(0, len(waiting) - MAX_WAITING)]}
        return tuple(effect for one in ended.values() for effect in self._end(one, CROWDED))

    def gone(self, sid: str) -> tuple[Effect, ...]:
        """Forget a connection, and return what others are told."""
        member = self._members.get(sid)
        return () if member is None else self._forget(member, GONE)

    def seat_of(self, sid: str) -> Seat | None:
        """Return where a connection sits."""
        member = self._members.get(sid)
        return None if member is None else member.seat

    def member(self, sid: str) -> Member | None:
        """Return who came with a connection; None where its tokens were not taken, or it is over."""
        return self._members.get(sid)

    def members_of(self, office_id: str) -> list[Member]:
        """Return who sits in an office, by name."""
        return [member for _, member in sorted(self._seated.get(office_id, {}).items())]

    def join(self, sid: str, asked: Join) -> Outcome:
        """Seat a connection."""
        member = self._members.get(sid)
        if member is None:
            return Outcome(False, NOT_YOURS)
        seat = _named(member.seats, asked.office_id, asked.role, asked.name)
        if seat is None:
            return Outcome(False, NOT_YOURS)
        if member.seat == seat:
            return Outcome(True)
        if member.seat is not None and seat.role is Role.AGENT:
            return Outcome(False, LEAVE_FIRST)
        there = self._seated.get(seat.office_id, {})
        before = there.get(seat.name)
        if before is None and len(there) >= MAX_MEMBERS:
            return Outcome(False, FULL)
        if seat.role is Role.AGENT and any(m.role is Role.AGENT and m is not before for m in there.values()):
            return Outcome(False, HAS_AGENT)
        effects: tuple[Effect, ...] = ()
        if before is not None:
            effects += (*self._stand_up(before, REPLACED), Cut(before.sid, REPLACED))
        effects += self._stand_up(member, SWITCHED)
        self._seated.setdefault(seat.office_id, {})[seat.name] = member
        member.seat = seat
        self._moved(seat, None)
        return Outcome(True, effects=(*effects, *self._tell(member, seat, Notice.ENTER, _named_in(seat))))

    def leave(self, sid: str, office_id: str) -> Outcome:
        """Let a connection leave the office in which it sits."""
        member = self._members.get(sid)
        if member is None or member.seat is None or member.seat.office_id != office_id:
            return Outcome(False, NOT_THERE)
        return Outcome(True, effects=self._stand_up(member, LEFT))

    def list_room(self, sid: str, asked: ListRoom) -> list[JsonValue] | None:
        """Return who sits in an office, for whoever holds a token of it; None for anybody else."""
        member = self._members.get(sid)
        if member is None:
            return None
        held = [seat for seat in member.seats if seat.is_for(asked.office_id, seat.role, asked.agent)]
        if not held:
            return None
        return [
            {"sid": one.sid, "name": name, "role": str(one.role), "office_id": held[0].office_id}
            for name, one in sorted(self._seated.get(held[0].office_id, {}).items())
        ]

    def update(self, sid: str, event: ServerEvent, computer: str) -> Outcome:
        """Tell the office of a Computer that something of it has changed."""
        seat = self.seat_of(sid)
        if seat is None or seat.role is not Role.COMPUTER or seat.name != computer:
            return Outcome(False, NOT_THERE)
        return Outcome(True, effects=self._tell(self._members[sid], seat, UPDATES[event], {"computer": computer}))

    def cancel(self, sid: str, asked: Cancel) -> Outcome:
        """Tell the Computers of an Agent's office that it cancels a call."""
        seat = self.seat_of(sid)
        if seat is None or seat.role is not Role.AGENT or seat.name != asked.agent:
            return Outcome(False, NOT_THERE)
        data: JsonValue = {"agent": asked.agent, "req_id": asked.req_id}
        return Outcome(True, effects=self._tell(self._members[sid], seat, Notice.CANCEL, data))

    def computer(self, sid: str, agent: str, computer: str) -> str | None:
        """Return the connection of a Computer in the office of the Agent that asks under its own name, or None."""
        seat = self.seat_of(sid)
        if seat is None or seat.role is not Role.AGENT or seat.name != agent:
            return None
        found = self._seated[seat.office_id].get(computer)
        return found.sid if found is not None and found.role is Role.COMPUTER else None

    def revoke(self, token_ids: Collection[str], why: str) -> tuple[Effect, ...]:
        """End each connection that came with one of these tokens."""
        return self._cut(lambda seat: seat.token_id in token_ids, why)

    def close_all(self, why: str) -> tuple[Effect, ...]:
        """End all connections; those that are still there hear of each that leaves before."""
        return self._cut(lambda _: True, why)

    def _cut(self, meant: Callable[[Seat], bool], why: str) -> tuple[Effect, ...]:
        effects: list[Effect] = []
        for member in [one for one in self._members.values() if any(map(meant, one.seats))]:
            effects += self._end(member, why)
        return tuple(effects)

    def _end(self, member: Member, why: str) -> tuple[Effect, ...]:
        return (*self._forget(member, why), Cut(member.sid, why))

    def _forget(self, member: Member, why: str) -> tuple[Effect, ...]:
        del self._members[member.sid]
        for token_id in {seat.token_id for seat in member.seats}:
            del self._holders[token_id][member.sid]
            if not self._holders[token_id]:
                del self._holders[token_id]
        return self._stand_up(member, why)

    def _stand_up(self, member: Member, why: str) -> tuple[Effect, ...]:
        """Return what the others of its office are told before a member has left, and let it leave."""
        seat, member.seat = member.seat, None
        if seat is None:
            return ()
        told = self._tell(member, seat, Notice.LEAVE, _named_in(seat))
        there = self._seated[seat.office_id]
        del there[seat.name]
        if not there:
            del self._seated[seat.office_id]
        self._moved(seat, why)
        return told

    def _tell(self, sender: Member, seat: Seat, notice: Notice, data: JsonValue) -> tuple[Effect, ...]:
        others = tuple(one.sid for one in self._seated[seat.office_id].values() if one is not sender)
        return (Tell(others, notice, data),) if others else ()


def _named(seats: Sequence[Seat], office_id: str, role: Role, name: str) -> Seat | None:
    """Return the seat that a request names; all are compared, whichever it is."""
    fitting = [seat for seat in seats if seat.is_for(office_id, role, name)]
    return fitting[0] if fitting else None


def _named_in(seat: Seat) -> JsonValue:
    """Return the data of a notice that a member enters or leaves."""
    return {"office_id": seat.office_id, str(seat.role): seat.name}
