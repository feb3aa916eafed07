"""What faces exchange with the daemon about messages that are there: reactions, edits, decisions of moderators."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from sublet.daemon.api.base import Request, View
from sublet.daemon.api.room_member_models import MAX_REASON_CHARS
from sublet.daemon.api.room_models import MAX_BODY_CHARS

MAX_EMOJI_CHARS = 64


class React(Request):
    """A reaction to a message."""

    emoji: Annotated[str, Field(min_length=1, max_length=MAX_EMOJI_CHARS)]


class EditMessage(Request):
    """What a message says from now on."""

    body: Annotated[str, Field(min_length=1, max_length=MAX_BODY_CHARS)]


class Moderate(Request):
    """A decision on a message that others have written too."""

    action: Literal["redact", "pin", "unpin"]
    reason: Annotated[str, Field(max_length=MAX_REASON_CHARS)] = ""


class MessageChange(View):
    """What was done to a message; ``changed`` is False where it was so already."""

    room_id: str
    ref_id: str
    changed: bool = True


class MessageVersion(View):
    """What a message has said at a time."""

    body: str
    at: JsonValue = None
