"""What faces exchange with the daemon about texts that several write (EXT-02)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sublet.daemon.api.base import Request, ToldTime, View
from sublet.daemon.api.room_models import MAX_BODY_CHARS, MAX_ENTITY_CHARS

MAX_EDITORS = 256
MAX_EDITS = 64


class TextEdit(Request):
    """Characters of a text, from ``index`` on, and what comes in their place."""

    index: Annotated[int, Field(ge=0, le=MAX_BODY_CHARS)]
    delete: Annotated[int, Field(ge=0, le=MAX_BODY_CHARS)] = 0
    insert: Annotated[str, Field(max_length=MAX_BODY_CHARS)] = ""


class EditText(Request):
    """What to change in a text that was read as ``base``, in order; where it is another one by now, nothing is done."""

    base: Annotated[str, Field(max_length=MAX_BODY_CHARS)]
    edits: Annotated[list[TextEdit], Field(min_length=1, max_length=MAX_EDITS)]


class ShareText(Request):
    """Who else may write into a message of the caller; None leaves it as it is."""

    mode: Literal["owner_only", "explicit", "room_members"] | None = None
    editors: (
        Annotated[list[Annotated[str, Field(min_length=1, max_length=MAX_ENTITY_CHARS)]], Field(max_length=MAX_EDITORS)]
        | None
    ) = None


class TextAccess(View):
    """Who may write into a message: its owner, and by ``mode`` nobody else, ``editors``, or all members."""

    room_id: str
    ref_id: str
    owner: str
    mode: str
    editors: list[str]
    updated_at: ToldTime | None


class TextView(TextAccess):
    """A text that several write, and whether the caller may."""

    text: str
    may_edit: bool
