"""What faces exchange with the daemon about who is there, and what is not sent yet (EXT-09, EXT-12)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sublet.daemon.api.base import Request, ToldLine, ToldTime, View
from sublet.daemon.api.room_models import MAX_BODY_CHARS, RefId

MAX_STATUS_CHARS = 200


class SetPresence(Request):
    """What the caller is about; None leaves it as it is, and an empty status takes it away."""

    status: Annotated[str, Field(max_length=MAX_STATUS_CHARS)] | None = None
    typing: bool | None = None


class SaveDraft(Request):
    """What the caller has begun to write; an empty one takes the draft away."""

    body: Annotated[str, Field(max_length=MAX_BODY_CHARS)]
    reply_to: RefId | None = None


class PresenceView(View):
    """A member who is there."""

    entity: str
    typing: bool
    status: ToldLine | None
    last_active: str | None


class DraftView(View):
    """What somebody has begun to write in a room; an empty body where that is nothing."""

    room_id: str
    body: str
    reply_to: str | None
    updated_at: ToldTime | None
