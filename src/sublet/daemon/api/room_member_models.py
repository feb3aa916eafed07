"""What faces exchange with the daemon about who is in a room, and about a room's config (ezagent 4.2)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from sublet.daemon.api.base import Request
from sublet.daemon.api.room_models import MAX_ENTITY_CHARS, RoomName

MAX_REASON_CHARS = 500
MAX_CHANGES = 64

Entity = Annotated[str, Field(min_length=1, max_length=MAX_ENTITY_CHARS)]
ExtensionId = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z0-9][a-z0-9-]*$")]
Power = Annotated[int, Field(ge=0, le=100)]


class ConfigureRoom(Request):
    """Changes to a room's config; what is not named stays as it is.

    ``levels`` are the powers that are asked for, ``powers`` those that members have; ``fields`` names anything else
    with dots, such as ``ext.channels.hints``.
    """

    name: RoomName | None = None
    policy: Literal["open", "knock", "invite"] | None = None
    enable: Annotated[list[ExtensionId], Field(max_length=MAX_CHANGES)] = Field(default_factory=list)
    disable: Annotated[list[ExtensionId], Field(max_length=MAX_CHANGES)] = Field(default_factory=list)
    levels: Annotated[dict[Literal["default", "events_default", "admin"], Power], Field(max_length=3)] = Field(
        default_factory=dict
    )
    powers: Annotated[dict[Entity, Power], Field(max_length=MAX_CHANGES)] = Field(default_factory=dict)
    roles: Annotated[dict[Entity, Literal["member", "admin", "owner"]], Field(max_length=MAX_CHANGES)] = Field(
        default_factory=dict
    )
    fields: Annotated[dict[str, JsonValue], Field(max_length=MAX_CHANGES)] = Field(default_factory=dict)


class Knock(Request):
    """Ask to be let in; ``text`` is read by who decides."""

    text: Annotated[str, Field(max_length=MAX_REASON_CHARS)] = ""


class DeclineKnock(Request):
    """Answer a knock with no."""

    entity: Entity


class RemoveMember(Request):
    """Take somebody out of a room, or keep them out."""

    entity: Entity
    reason: Annotated[str, Field(max_length=MAX_REASON_CHARS)] = ""
