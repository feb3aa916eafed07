"""Operations on texts that several write: a text, its changes, and who may write into it (EXT-02)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sublet.daemon.api.base import Request, ToldTime, View, size_of
from sublet.daemon.api.operation import Asks, Operation
from sublet.daemon.api.room_fields import MAX_BODY_CHARS, Entity, OneMessage
from sublet.policy.decision import Action

MAX_EDITORS = 256
MAX_EDITS = 64


class TextEdit(Request):
    """Characters of a text, from ``index`` on, and what comes in their place."""

    index: Annotated[int, Field(ge=0, le=MAX_BODY_CHARS)]
    delete: Annotated[int, Field(ge=0, le=MAX_BODY_CHARS)] = 0
    insert: Annotated[str, Field(max_length=MAX_BODY_CHARS)] = ""


class EditText(OneMessage):
    """What to change in a text that was read as ``base``, in order; where it is another one by now, nothing is done."""

    base: Annotated[str, Field(max_length=MAX_BODY_CHARS)]
    edits: Annotated[list[TextEdit], Field(min_length=1, max_length=MAX_EDITS)]

    @property
    def size_bytes(self) -> int:
        """How much is written."""
        return sum(size_of(one.insert) for one in self.edits)


class ShareText(OneMessage):
    """Who else may write into a message of the caller; None leaves it as it is."""

    mode: Literal["owner_only", "explicit", "room_members"] | None = None
    editors: Annotated[list[Entity], Field(max_length=MAX_EDITORS)] | None = None

    @property
    def size_bytes(self) -> int:
        """How much is said: nothing."""
        return 0


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


_MESSAGE = "/v1/rooms/{room_id}/messages/{ref_id}"
_READS = Asks(Action.ROOM_READ, "{room_id}")
_SENDS = Asks(Action.ROOM_SEND, "{room_id}", ("size_bytes",))

GET_TEXT = Operation(
    "texts.get",
    "GET",
    f"{_MESSAGE}/text",
    OneMessage,
    TextView,
    asks=_READS,
    summary="Return a text as it is, with who may write into it.",
)
EDIT_TEXT = Operation(
    "texts.edit",
    "PATCH",
    f"{_MESSAGE}/text",
    EditText,
    TextView,
    asks=_SENDS,
    summary="Change a text where nobody has changed it since it was read, and return it.",
)
GET_ACCESS = Operation(
    "texts.access",
    "GET",
    f"{_MESSAGE}/access",
    OneMessage,
    TextAccess,
    asks=_READS,
    summary="Return who may write into a message.",
)
SHARE_TEXT = Operation(
    "texts.share",
    "POST",
    f"{_MESSAGE}/access",
    ShareText,
    TextAccess,
    asks=_SENDS,
    summary="Let others write into a message of the caller, and return who may.",
)
