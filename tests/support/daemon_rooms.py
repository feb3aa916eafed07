"""Rooms of daemons that run, as commands show them."""

from __future__ import annotations

from typing import Any, Final, Protocol

from support.daemons import wait_for

WAIT_SECONDS: Final = 60
_WATCHES = 20


class Commands(Protocol):
    """A daemon's command line, as processes (``Daemon``) or typed in this one (``Typing``)."""

    def json(self, *arguments: str) -> Any:
        """Run a command with ``--json`` and return the one value that it printed."""


def knows(who: Commands, room: str) -> bool:
    """Tell whether somebody has a room in their list."""
    return room in [one["room_id"] for one in who.json("room", "list")]


def until_known(who: Commands, room: str) -> None:
    """Wait until somebody has a room in their list, and accept where they are invited into it."""
    wait_for(lambda: knows(who, room) or accepts(who, room), WAIT_SECONDS, "the room")


def is_invited(who: Commands, room: str) -> bool:
    """Tell whether an invitation into a room waits for somebody."""
    return (room, "pending") in [(one["room_id"], one["answer"]) for one in who.json("room", "invitations")]


def accepts(who: Commands, room: str) -> bool:
    """Accept an invitation into a room, if it waits; return whether the room is there."""
    return is_invited(who, room) and bool(who.json("room", "accept", room)["here"])


def shared_room(first: Commands, other: Commands, *options: str) -> str:
    """Return a room of the first, called Work and made with these options, in which the other is, too."""
    room: str = first.json("room", "create", "Work", *options)["room_id"]
    first.json("room", "invite", room, other.json("whoami")["entity_id"])
    until_known(other, room)
    return room


def bodies(who: Commands, room: str) -> list[str]:
    """Return what a room says; nothing where somebody does not know it yet."""
    return [one["body"] for one in who.json("read", room, "--limit", "200")] if knows(who, room) else []


def until_event(who: Commands, cursor: int, kind: str, **data: object) -> int:
    """Watch until there is such an event after a cursor; return the cursor after it."""
    for _ in range(_WATCHES):
        answer = who.json("watch", "--since", str(cursor), "--wait", "20")
        cursor = answer["cursor"]
        for event in answer["events"]:
            if event["kind"] == kind and all(event.get(name) == value for name, value in data.items()):
                return cursor
    raise AssertionError(f"no {kind}")
