"""Whom a message is for: what a person or a model writes, as a room or as an entity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId, RoomId, is_entity_id, is_room_id
from sublet.protocol.text import clean_line

MAX_SHOWN_CHARS: Final = 100
_HINT: Final = (
    "Give a room's id or name, @entity, AGENT@PEER, or a paired daemon's name: "
    "`sublet room list`, `sublet peers`, or the tool directory."
)


@dataclass(frozen=True, slots=True)
class Addressee:
    """A room, or whom to talk with in a room for two."""

    room_id: RoomId | None = None
    entity: EntityId | None = None


class Addresses:
    """Reads addresses.

    A name that is both a room's and a peer's is refused: a stranger may call a room what they like, and must not come
    by what was meant for somebody else.

    Args:
        node_of: returns the node id of the paired daemon with that name; None for none.
        is_paired: tells whether the daemon with a node id is paired.
    """

    def __init__(self, node_of: Callable[[str], str | None], is_paired: Callable[[str], bool]) -> None:
        self._node_of = node_of
        self.is_paired = is_paired

    def read(self, given: str, rooms: Sequence[Mapping[str, Any]]) -> Addressee:
        """Return what ``given`` names.

        Args:
            given: as a person or a model wrote it.
            rooms: those of the caller, as ``room.list`` returns them.

        Raises:
            SubletError: ``NOT_FOUND`` for nothing, ``INVALID_ARGUMENT`` for several things.
        """
        if is_room_id(given):
            return Addressee(room_id=given)
        if given.startswith("@"):
            return Addressee(entity=self._entity(given))
        if "@" in given:
            agent, _, node = given.partition("@")
            return Addressee(entity=self._entity(f"@{agent}:{self._node_of(node) or node}"))
        named = [str(room["room_id"]) for room in rooms if room["name"] == given]
        peer, _, agent = given.partition("/")
        node_id = self._node_of(peer)
        if node_id is not None and not named:
            return Addressee(entity=self._entity(f"@{agent or 'human'}:{node_id}"))
        shown = clean_line(given, MAX_SHOWN_CHARS)
        if not named:
            raise SubletError(LocalCode.NOT_FOUND, f"there is no room and no peer called {shown!r}", _HINT)
        if len(named) > 1 or node_id is not None:
            what = f"{len(named)} rooms" if node_id is None else "a room and a peer"
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"{what} are called {shown!r}", "Give the room's id.")
        return Addressee(room_id=named[0])

    def _entity(self, text: str) -> EntityId:
        local, _, domain = text.partition(":")
        entity = f"{local}:{self._node_of(domain) or domain}"
        if not is_entity_id(entity):
            shown = clean_line(text, MAX_SHOWN_CHARS)
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"{shown!r} is no entity", _HINT)
        return entity


def direct_name(first: EntityId, other: EntityId) -> str:
    """Return the name of the room for two, which is the same whoever of them opens it."""
    low, high = sorted((first, other))
    return f"{low} and {high}"


def direct_with(room: Mapping[str, Any], entity: EntityId) -> EntityId | None:
    """Return with whom a room is for two, as ``entity`` sees it; None where it is another room."""
    low, joined, high = str(room["name"]).partition(" and ")
    if not joined or entity not in (low, high) or low == high or not is_entity_id(low) or not is_entity_id(high):
        return None
    return high if entity == low else low
