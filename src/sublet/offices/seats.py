"""Who may sit where: what a token is good for, and who holds which seat now."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sublet.protocol.canonical import JsonValue
from sublet.protocol.offices.names import Role


@dataclass(frozen=True, slots=True)
class Seat:
    """A place in an office that one token is good for.

    Args:
        office_id: of the office.
        office: its name, for people and rules.
        role: of whoever sits there.
        name: under which it sits there, unique in the office.
        token_id: of the token, which is no secret.
    """

    office_id: str
    office: str
    role: Role
    name: str
    token_id: str

    def is_for(self, office_id: str, role: str, name: str) -> bool:
        """Tell whether a request names this seat, in a time that does not depend on where it differs."""
        same = hmac.compare_digest(self.office_id.encode(), office_id.encode(errors="replace"))
        same &= hmac.compare_digest(self.role.value.encode(), role.encode(errors="replace"))
        return same & hmac.compare_digest(self.name.encode(), name.encode(errors="replace"))


@dataclass(slots=True)
class Member:
    """A connection that has shown tokens, whether it has joined an office or not.

    Args:
        sid: of its connection.
        seats: where it may sit.
        seat: where it sits now.
    """

    sid: str
    seats: Sequence[Seat]
    seat: Seat | None = None

    @property
    def role(self) -> Role:
        """The role of all its tokens."""
        return self.seats[0].role


@dataclass(frozen=True, slots=True)
class Tell:
    """An event for some connections."""

    sids: tuple[str, ...]
    event: str
    data: JsonValue


@dataclass(frozen=True, slots=True)
class Cut:
    """The end of a connection, once all that was told before has left."""

    sid: str
    why: str


Effect = Tell | Cut


class FindsSeats(Protocol):
    """Knows the tokens."""

    def find(self, secret: str) -> Seat | None:
        """Return the seat that a token is good for; None where there is no such token."""
