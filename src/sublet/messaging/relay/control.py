"""What a client tells the relay itself, over its link: what it wants to hear, and who is in its rooms.

A question under ``relay/attend``, ``relay/room`` or ``relay/statement`` of its slot, which is who asks; the answer is a
JSON object with ``ok``, or with ``error`` as the registration port has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from typing import Final

from sublet.messaging.relay.registry import Registry
from sublet.protocol.canonical import JsonValue, canonical_json
from sublet.protocol.relay.attendance import Attendance, parse_attendance
from sublet.protocol.relay.errors import RelayRefusal, invalid
from sublet.protocol.relay.slot_keys import CONTROL

ATTEND: Final = f"{CONTROL}/attend"
STATE_ROOM: Final = f"{CONTROL}/room"
STATEMENT: Final = f"{CONTROL}/statement"
MAX_ROOM_ID: Final = 64


class Control:
    """Answers what is for the relay. Used on the forwarder's thread.

    Args:
        registry: keeps statements.
        attending: what each daemon wants to hear, by node id.
        changed: told of the rooms in which somebody else gets what is sent from now on.
    """

    def __init__(
        self,
        registry: Registry,
        attending: MutableMapping[str, Attendance],
        changed: Callable[[Iterable[str]], None],
    ) -> None:
        self._registry = registry
        self._attending = attending
        self._changed = changed

    def answer(self, sender: str, key: str, payload: bytes) -> bytes:
        """Return the answer to a daemon, by its node id. Blocks on the disk where it states a room."""
        try:
            found = self._answer(sender, key, payload)
        except RelayRefusal as refusal:
            return error_json(refusal)
        return canonical_json({"ok": found})

    def _answer(self, sender: str, key: str, payload: bytes) -> JsonValue:
        if key == ATTEND:
            wants = parse_attendance(payload)
            before = self._attending.get(sender, Attendance())
            self._attending[sender] = wants
            self._changed(before.rooms ^ wants.rooms)
            return True
        if key == STATE_ROOM:
            statement = self._registry.state_room(payload, sender)
            self._changed((statement.room,))
            return statement.version
        if key == STATEMENT:
            if len(payload) > MAX_ROOM_ID:
                raise invalid("that is no room")
            known = self._registry.rooms.statement(payload.decode("ascii", "replace"))
            # Who is in a room is told to those alone who are, or may state it.
            if known is None or sender not in known.members | known.homes.managers:
                return None
            return known.encode().decode()
        raise invalid("the relay knows no such question")


def error_json(refusal: RelayRefusal) -> bytes:
    """Return a refusal as it travels."""
    return canonical_json({"error": {"code": str(refusal.code), "message": refusal.message}})
