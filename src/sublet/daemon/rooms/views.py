"""Rooms and messages as faces are shown them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sublet.daemon.api.room_models import MessageView, RoomDetail

_EXT: Final = "ext."
_KNOCKS: Final = "membership.knocks."
_SHOWN: Final = frozenset({"ref_id", "author", "body", "status", "created_at"})
_INNER: Final = frozenset({"content_type", "content_id", "content", "signature", "shard_id", "room_id"})
"""What only the engine needs."""


def detail_of(found: Mapping[str, Any]) -> RoomDetail:
    """Return a room, as ``room.get`` answers, with its members and who knocks."""
    roles = {entity: member["role"] for entity, member in found["members"].items()}
    powers = {entity: member["power"] for entity, member in found["members"].items()}
    knocks: dict[str, str] = {}
    for name, value in found["config"].items():
        if name.startswith(_KNOCKS) and isinstance(value, dict):
            knocks[name.removeprefix(_KNOCKS)] = str(value.get("text", ""))
    config = {name: value for name, value in found["config"].items() if not name.startswith(_KNOCKS)}
    changed = {"members": len(roles), "roles": roles, "powers": powers, "knocks": knocks, "config": config}
    return RoomDetail.model_validate({**found, **changed})


def message_view(ref: Mapping[str, Any]) -> MessageView:
    """Return a ref, as the engine shows it, as a message; what hooks have added stands in ``about``."""
    return MessageView(
        ref_id=ref["ref_id"],
        author=ref["author"],
        body=ref.get("body"),
        status=ref["status"],
        created_at=ref["created_at"],
        ext={name.removeprefix(_EXT): value for name, value in ref.items() if name.startswith(_EXT)},
        about={
            name: value
            for name, value in ref.items()
            if not name.startswith(_EXT) and name not in _SHOWN and name not in _INNER
        },
    )
