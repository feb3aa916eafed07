"""The published JSON Schema agrees with the codec and with the file in docs/schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from sublet.protocol.canonical import JsonValue
from sublet.protocol.codec import AnyMessage, decode, encode
from sublet.protocol.errors import RemoteProtocolError
from sublet.protocol.messages import Progress
from sublet.protocol.schema import awcp_schema
from support.awcp_strategies import any_json, messages

PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "schema" / "awcp-sublet-v1.schema.json"
VALIDATOR = Draft202012Validator(awcp_schema())


def test_the_published_file_is_current() -> None:
    assert json.loads(PUBLISHED.read_text(encoding="utf-8")) == awcp_schema(), "run scripts/write-schemas"


def test_it_cites_nothing_that_its_reader_does_not_have() -> None:
    assert "DESIGN" not in json.dumps(awcp_schema())


def test_it_is_a_valid_schema() -> None:
    Draft202012Validator.check_schema(awcp_schema())


@given(messages)
def test_every_message_we_send_is_valid(message: AnyMessage) -> None:
    VALIDATOR.validate(encode(message))


def test_progress_is_described() -> None:
    progress = Progress(delegation_id="dlg_1", phase="running", stream="stdout", text="1 passed")
    VALIDATOR.validate(progress.model_dump(mode="json"))


@given(messages, st.data())
def test_what_the_codec_accepts_is_valid_when_sent_on(message: AnyMessage, data: st.DataObject) -> None:
    body = encode(message)
    field = data.draw(st.sampled_from(sorted(body)))
    body[field] = data.draw(any_json)
    try:
        decoded = decode(body)
    except RemoteProtocolError:
        return
    VALIDATOR.validate(encode(decoded))


@pytest.mark.parametrize("name", ["Invite", "Accept", "Start", "Done", "Error", "Progress"])
def test_type_is_required_and_every_message_has_a_sublet_object(name: str) -> None:
    definitions = cast("dict[str, dict[str, JsonValue]]", awcp_schema()["$defs"])
    assert "type" in cast("list[str]", definitions[name]["required"])
    properties = cast("dict[str, JsonValue]", definitions[name]["properties"])
    assert ("sublet" in properties) == (name != "Progress")


def test_an_invite_has_to_name_its_version() -> None:
    definitions = cast("dict[str, dict[str, JsonValue]]", awcp_schema()["$defs"])
    assert "version" in cast("list[str]", definitions["Invite"]["required"])
