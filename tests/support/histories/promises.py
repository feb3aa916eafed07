"""What was acknowledged, and what therefore has to be shown to every member that may have it.

A promise is about one thing in one room, such as the body of a message, and has the last value that each writer gave
it. Where several wrote without having seen each other's value, any of these will do; where a writer had seen another's,
its own takes that one's place. What a writer may have taken back from all who had it is released:

- a home is rolled back: what none of the others shows by then was nowhere else; of a room of which none of them has
  anything but an invitation, neither the invitation nor the home itself shows it any more;
- a member is removed: what whoever removed it had not seen does not count.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sublet.protocol.ezagent.ids import EntityId, RoomId

Key = tuple[str, ...]
"""What a promise is about: its kind, and what of it."""


@dataclass
class Shown:
    """One room as one member is shown it."""

    refs: list[dict[str, Any]]
    name: str
    members: dict[EntityId, Any]
    config: dict[str, Any]
    readers: dict[EntityId, Any]
    profiles: dict[EntityId, Any]
    by_id: dict[str, dict[str, Any]] = field(init=False)
    places: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.by_id = {ref["ref_id"]: ref for ref in self.refs}
        self.places = {ref["ref_id"]: place for place, ref in enumerate(self.refs)}

    def same(self) -> tuple[Any, ...]:
        """Return what has to be equal at all members: of what is taken down only moderators see the body."""
        return (
            [_without(ref) for ref in self.refs],
            self.name,
            self.members,
            self.config,
            self.readers,
            self.profiles,
        )

    def differs(self, other: Shown) -> str:
        """Return in a few words how another member's is different; empty where it is the same."""
        mine, theirs = [ref["ref_id"] for ref in self.refs], [ref["ref_id"] for ref in other.refs]
        if set(mine) != set(theirs):
            return f"{len(set(mine) - set(theirs))} messages more and {len(set(theirs) - set(mine))} fewer"
        if mine != theirs:
            return "another order"
        for one, two in zip(self.refs, other.refs, strict=True):
            if _without(one) != _without(two):
                names = [name for name in {**one, **two} if _without(one).get(name) != _without(two).get(name)]
                return f"{one['ref_id']}: " + "; ".join(
                    f"{name} {_short(one.get(name))} and {_short(two.get(name))}" for name in names
                )
        for name in ("name", "members", "config", "readers", "profiles"):
            if getattr(self, name) != getattr(other, name):
                return f"{name}: {_short(getattr(self, name))} and {_short(getattr(other, name))}"
        return ""


def _short(value: object) -> str:
    said = repr(value)
    return said if len(said) <= 160 else f"{said[:160]}…"


def _without(ref: dict[str, Any]) -> dict[str, Any]:
    """Return a message without what only moderators see of it once it is taken down; of a purged one, that it is."""
    if _is_purged(ref):
        return {"ref_id": ref["ref_id"], "purged": True, "body": ref.get("body")}
    if ref.get("redacted") or ref.get("status") == "deleted_by_author":
        return {"ref_id": ref["ref_id"], "redacted": bool(ref.get("redacted")), "status": ref.get("status")}
    return {name: value for name, value in ref.items() if name != "reply_preview"}


def _is_purged(ref: dict[str, Any]) -> bool:
    """Tell whether all of a message is gone for good."""
    return bool(ref.get("purged")) and ref["purged"]["what"] == "message"


class Views:
    """Rooms as some members are shown them, each looked at once and only when somebody asks.

    Args:
        look: returns a room as one of them shows it; None where it shows none.
        rooms: which there are.
        members: who is asked, one after the other.
        left: returns what is left of a room that none of them shows; None where they may have more of it all the same.
    """

    def __init__(
        self,
        look: Callable[[int, RoomId], Awaitable[Shown | None]],
        rooms: Sequence[RoomId],
        members: Sequence[int],
        left: Callable[[RoomId], Awaitable[list[Shown] | None]] | None = None,
    ) -> None:
        self.rooms = rooms
        self._look = look
        self._members = members
        self._left = left
        self._known_left: dict[RoomId, list[Shown] | None] = {}
        self._found: dict[tuple[int, RoomId], Shown | None] = {}

    async def of(self, room: RoomId) -> AsyncIterator[Shown]:
        """Yield the views of a room."""
        for who in self._members if room in self.rooms else ():
            if (who, room) not in self._found:
                self._found[who, room] = await self._look(who, room)
            found = self._found[who, room]
            if found is not None:
                yield found

    async def left(self, room: RoomId) -> list[Shown] | None:
        """Return what is left of a room that none of them shows; None where that is not known."""
        if self._left is None or room not in self.rooms:
            return None
        if room not in self._known_left:
            self._known_left[room] = await self._left(room)
        return self._known_left[room]


@dataclass(frozen=True, slots=True)
class Promise:
    """One thing that was acknowledged.

    Args:
        step: which one.
        room: where.
        key: what about.
        value: what it has to be.
    """

    step: int
    room: RoomId
    key: Key
    value: Any

    def __str__(self) -> str:
        return f"step {self.step}: {' '.join(self.key)} is {_short(self.value)}"


class Promises:
    """All that was acknowledged in a history."""

    def __init__(self) -> None:
        self._made: dict[tuple[RoomId, Key], dict[str, Promise]] = {}

    def make(self, promise: Promise, writer: str, seen: Shown | None = None) -> None:
        """Keep a promise in place of what its writer promised before, and of what it has seen of others.

        Args:
            promise: what was acknowledged.
            writer: the daemon, in the life of its home in which it knows what it has said.
            seen: the room as the writer was shown it before.
        """
        there = self._made.setdefault((promise.room, promise.key), {})
        if seen is not None:
            for other, before in list(there.items()):
                if other != writer and self._holds(before, {other: before}, seen):
                    del there[other]
        there[writer] = promise

    def value(self, room: RoomId, key: Key) -> list[Any]:
        """Return the values that are promised of something."""
        return [one.value for one in self._made.get((room, key), {}).values()]

    def release(self, room: RoomId, key: Key) -> None:
        """Forget what was promised of something: somebody has changed it in a way that leaves no single value."""
        self._made.pop((room, key), None)

    async def reconsider(self, later: Mapping[str, str], views: Views) -> None:
        """Release what some writers promised and nobody shows; what is left is promised by others from now on.

        What is not known to be shown by one view is looked for in the next one, so a single one is made as a rule.

        Args:
            later: writers whose homes were rolled back, or who were removed, and what each is called in what it has
                said until now.
            views: the rooms as others are shown them, or as whoever removed it is; of a room of which there is none,
                and of which it is not known what is left, all is left as it is.
        """
        for (room, key), there in self._made.items():
            for writer in [one for one in there if one in later]:
                promise, found, holds = there[writer], False, False
                for place in [room] if room else views.rooms:
                    async for one in views.of(place):
                        found, holds = True, self._holds(promise, {writer: promise}, one, strictly=True)
                        if holds:
                            break
                    if holds:
                        break
                if room and not found and (left := await views.left(room)) is not None:
                    found, holds = (
                        True,
                        any(self._holds(promise, {writer: promise}, one, strictly=True) for one in left),
                    )
                if found or key[0] == "profile":
                    del there[writer]
                if holds:
                    there[later[writer]] = promise

    def writers(self) -> set[str]:
        """Return all who have promised something."""
        return {writer for there in self._made.values() for writer in there}

    def broken(self, room: RoomId, shown: Shown) -> list[Promise]:
        """Return the promises that a member's view of a room does not keep."""
        return [
            next(iter(there.values()))
            for (place, key), there in self._made.items()
            if place in (room, "") and there and not self._kept(there, shown) and not self._taken_back(place, key)
        ]

    def _taken_back(self, room: RoomId, key: Key) -> bool:
        """Tell whether something is about a message that its author has deleted, and that so is shown nowhere."""
        return key[0] == "sent" and bool(self._made.get((room, ("gone", key[1]))))

    def _kept(self, there: dict[str, Promise], shown: Shown) -> bool:
        return any(self._holds(promise, there, shown) for promise in there.values())

    def _holds(self, promise: Promise, there: dict[str, Promise], shown: Shown, strictly: bool = False) -> bool:
        """Tell whether a view keeps a promise.

        Args:
            promise: what was promised.
            there: all that was promised of the same.
            shown: the view.
            strictly: what a message says is not there unless the message is; by default that is told of once.
        """
        kind, *of = promise.key
        if kind == "sent":
            return of[0] in shown.by_id
        if kind == "profile" and len(there) > 1:
            return True  # as with bodies
        if kind in _OF_ROOMS:
            return bool(_OF_ROOMS[kind](shown, of, promise.value))
        ref = shown.by_id.get(of[0])
        if ref is None:
            return not strictly
        if kind == "behind":
            return bool(shown.places[of[0]] > shown.places.get(promise.value, -1))
        if kind == "gone":
            return bool(ref.get("redacted")) or ref.get("status") == "deleted_by_author" or _is_purged(ref)
        if kind == "purged":
            return _is_purged(ref) and ref.get("body") is None
        if ref.get("redacted") or ref.get("status") == "deleted_by_author" or _is_purged(ref):
            return True
        if kind == "body" and len(there) > 1:
            return ref.get("body") is not None  # two lives of one home have written it, and texts are merged
        kept: bool = _OF_REFS[kind](ref, of, promise.value)
        return kept


def _reacted(ref: dict[str, Any], of: list[str], value: Any) -> bool:
    told = (ref.get("reactions") or {}).get(of[2])
    users = told.get("users", []) if isinstance(told, dict) else told or []
    return bool((of[1] in users) == value)


_OF_ROOMS: Final[dict[str, Callable[[Shown, list[str], Any], bool]]] = {
    "name": lambda shown, of, value: shown.name == value,
    "config": lambda shown, of, value: shown.config.get(of[0]) == value,
    "member": lambda shown, of, value: (of[0] in shown.members) == value,
    "read": lambda shown, of, value: of[0] in shown.readers or of[0] not in shown.members,
    "profile": lambda shown, of, value: shown.profiles.get(of[0]) in (value, None),
}
_OF_REFS: Final[dict[str, Callable[[dict[str, Any], list[str], Any], bool]]] = {
    "body": lambda ref, of, value: ref.get("body") == value,
    "characters": lambda ref, of, value: (ref.get("body") or "").count(of[1]) == value,
    "reaction": _reacted,
    "pinned": lambda ref, of, value: bool(ref.get("pinned")) == value,
    "file": lambda ref, of, value: (ref.get("ext.media") or {}).get("blob_hash") == value,
}
