"""Where histories are played: daemons that are asked, and to which things happen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from sublet.protocol.ezagent.ids import EntityId, RoomId

INVITATIONS: Final = ("invitations.list", "invitations.accept", "invitations.decline")
"""Operations that the engine does not have."""

NOWHERE: Final = ()
"""What a room sums up to at a daemon that has nothing of it."""


class NotRunning(Exception):
    """The daemon is down, or can't do this now; nothing was acknowledged."""


class Stage(Protocol):
    """Daemons of one history; whoever is asked while it is down says ``NotRunning``."""

    def entity(self, who: int) -> EntityId:
        """Return who a daemon is in rooms."""

    def running(self) -> list[int]:
        """Return the daemons that run."""

    async def call(self, who: int, operation: str, /, *, of_copy: bool = False, **arguments: Any) -> Any:
        """Return what an operation of the engine answers, or one on invitations (``INVITATIONS``).

        Raises:
            SubletError: it is refused.
            NotRunning: see there.
        """

    async def sum_of(self, who: int, room: RoomId) -> Any:
        """Return what a room sums up to at a daemon, cheaply, to be compared.

        ``NOWHERE`` where nothing of it is there, and None where that can't be told.
        """

    async def lacks(self, who: int, room: RoomId) -> bool:
        """Tell whether a daemon has nothing of a room; one that can't say, as while it is down, is not said to."""

    async def kill(self, who: int) -> None:
        """End a daemon as ``kill -9`` does."""

    async def start(self, who: int) -> None:
        """Start it over its home."""

    async def cut(self, groups: Sequence[Sequence[int]]) -> None:
        """Let daemons of different groups not reach each other."""

    async def heal(self) -> None:
        """Let all reach each other again."""

    async def save(self, who: int) -> None:
        """Put a copy of its home aside."""

    async def roll_back(self, who: int) -> None:
        """Kill it, put that copy in place of its home, and start it."""

    async def fill(self, who: int) -> None:
        """Leave its home no room on the disk."""

    async def make_room(self, who: int) -> None:
        """Give it room again."""

    async def clock(self, who: int, ms: int) -> None:
        """Let its clock be ahead of ours by so much."""

    async def copy(self, who: int) -> None:
        """Start a second daemon over a copy of its home."""

    async def end_copy(self, who: int) -> None:
        """End that daemon, and remove its home."""

    async def damage(self, who: int, how: str, seed: int) -> None:
        """Damage the database of a daemon that is down."""

    async def ask_first(self, who: int, asks: bool) -> None:
        """Let a daemon take up rooms by itself, or let its person be asked before."""

    async def attacker(self) -> EntityId:
        """Return who the attacker is in rooms; it is there from now on."""

    async def attack(self, how: str, room: RoomId, seed: int) -> None:
        """Let it attack; see ``kinds``."""

    async def end_attack(self) -> None:
        """Let it be gone."""

    async def repair(self) -> None:
        """Repair all that is not as it should be: links, clocks, disks, daemons that are down."""

    def offences(self) -> list[str]:
        """Return which honest daemons others have let in no more for a while, and why; that must never be."""

    async def reconcile(self) -> None:
        """Let everybody ask for what it lacks, and return when they have the answers."""
