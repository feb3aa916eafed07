"""A field that says nothing in the company in which it comes is refused by each request and tool, and names itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel, Field, ValidationError

from sublet.daemon.api.results import ApplyResult
from sublet.daemon.api.room_messages import AskReceipts, SendMessage
from sublet.daemon.api.room_news import SetWatch
from sublet.daemon.api.sessions import AskRequest
from sublet.mcp_server.arguments import DelegateReview
from sublet.mcp_server.room_arguments import ReadMessages, Watch
from sublet.protocol.idle_fields import refuse_idle

DELEGATION = {"delegation_id": "dlg_" + "0" * 32}
ROOM = "01234567-89ab-7def-8123-456789abcdef"
REF = "01JQZ" + "0" * 21
MESSAGE = {"room_id": ROOM, "ref_id": REF}
IN_A_ROOM = {"room": ROOM}


class Some(BaseModel):
    names: list[str] = Field(default_factory=list)
    most: int = 3


def test_what_is_as_it_is_where_nobody_names_it_is_no_news() -> None:
    refuse_idle(Some(), "say nothing", "names", "most")
    refuse_idle(Some(names=[], most=3), "say nothing", "names", "most")
    refuse_idle(Some(names=["a"]), "says nothing", "most")
    with pytest.raises(ValueError, match=r"^names, most say nothing$"):
        refuse_idle(Some(names=["a"], most=4), "say nothing", "names", "most")


@pytest.mark.parametrize(
    ("model", "given", "idle"),
    [
        (AskRequest, {"text": "x"}, {"mask": ["/a"]}),
        (AskRequest, {"text": "x"}, {"retries": 1}),
        (AskRequest, {"text": "x"}, {"on_failure": "reject"}),
        (AskRequest, {"text": "x", "answer": True}, {"agent": "coder"}),
        (ApplyResult, {**DELEGATION, "branch": "work"}, {"partial": True}),
        (ApplyResult, {**DELEGATION, "branch": "work"}, {"allow_mass_deletion": True}),
        (SetWatch, {**IN_A_ROOM, "channels": ["a"]}, {"on_content_edit": False}),
        (SetWatch, {**IN_A_ROOM, "channels": ["a"]}, {"on_reply": False}),
        (SetWatch, {**IN_A_ROOM, "channels": ["a"]}, {"on_thread": False}),
        (SetWatch, {**IN_A_ROOM, "channels": ["a"]}, {"on_reaction": True}),
        (SetWatch, {**IN_A_ROOM, "ref_id": REF}, {"this_room_only": True}),
        (AskReceipts, MESSAGE, {"wait": 5}),
        (SendMessage, {"room_id": ROOM, "body": "x"}, {"filename": "a.txt"}),
        (DelegateReview, {**DELEGATION, "action": "discard"}, {"partial": True}),
        (DelegateReview, {**DELEGATION, "action": "diff"}, {"partial": True}),
        (DelegateReview, {**DELEGATION, "action": "apply"}, {"cursor": "7"}),
        (ReadMessages, {**IN_A_ROOM, "ref_id": REF}, {"thread": REF}),
        (ReadMessages, {**IN_A_ROOM, "ref_id": REF}, {"limit": 3}),
        (Watch, {"action": "list"}, {"room": ROOM}),
        (Watch, {"action": "list"}, {"wait_seconds": 3}),
        (Watch, {"action": "wait"}, {"ref_id": REF}),
        (Watch, {"action": "wait"}, {"channels": ["a"]}),
        (Watch, {"action": "wait"}, {"reason": "why"}),
        (Watch, {"action": "set", **IN_A_ROOM, "ref_id": REF}, {"cursor": "1:2"}),
        (Watch, {"action": "set", **IN_A_ROOM, "channels": ["a"]}, {"on_reaction": True}),
        (Watch, {"action": "unset", **IN_A_ROOM}, {"channels": ["a"]}),
        (Watch, {"action": "unset", **IN_A_ROOM}, {"on_reaction": True}),
    ],
    ids=lambda one: one.__name__ if isinstance(one, type) else ",".join(one),
)
def test_an_idle_field_is_refused(model: type[BaseModel], given: Mapping[str, Any], idle: Mapping[str, Any]) -> None:
    model.model_validate(given)
    with pytest.raises(ValidationError) as refused:
        model.model_validate({**given, **idle})
    assert next(iter(idle)) in str(refused.value)
