"""AWCP messages in and out of A2A parts: ``{"awcp": {…}}`` in one data part (AWCP 4)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import cast

from a2a.helpers import new_data_part
from a2a.types import Message, Part, Task
from a2a.utils.errors import ContentTypeNotSupportedError
from google.protobuf.json_format import Error as JsonFormatError
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Value

from sublet.protocol.canonical import JsonValue
from sublet.protocol.codec import MAX_REASON_CHARS, AnyMessage, encode, narrow_bounded
from sublet.protocol.errors import ErrorCode, RemoteProtocolError
from sublet.protocol.messages import AWCP_MEDIA_TYPE, PART_KEY
from sublet.protocol.text import clean_line

ANSWER_ARTIFACT = "answer"
"""Of a plain message: what the agent says."""
REDACTED = "[redacted]"


def to_part(message: AnyMessage) -> Part:
    """Return the data part that carries ``message``."""
    return new_data_part({PART_KEY: encode(message)}, media_type=AWCP_MEDIA_TYPE)


def find_body(parts: Iterable[Part]) -> dict[str, JsonValue] | None:
    """Return the object under the ``awcp`` key, numbers narrowed, or None where no part has that key.

    The media type is not asked for: 0.3 clients cannot send one on a data part.

    Raises:
        RemoteProtocolError: ``DECLINED`` for several AWCP parts, one that is no object, or one out of bounds.
    """
    found = [narrow_bounded(plain(part.data.struct_value.fields[PART_KEY])) for part in parts if _is_awcp(part)]
    if not found:
        return None
    if len(found) > 1 or not isinstance(found[0], dict):
        raise RemoteProtocolError(
            ErrorCode.DECLINED,
            "an A2A message carries exactly one AWCP object",
            'Send {"awcp": {…}} in one data part.',
        )
    return found[0]


def message_text(message: Message) -> str:
    """Return what a plain message says: its texts, its data as JSON, and its files that are text, one after the other.

    Raises:
        ContentTypeNotSupportedError: a part is something else, which nobody here could read. Nothing is dropped.
        RemoteProtocolError: ``DECLINED`` for data that is no JSON, or out of bounds.
    """
    return "\n".join(_told(part) for part in message.parts)


def _told(part: Part) -> str:
    kind = part.WhichOneof("content")
    media_type = part.media_type.partition(";")[0].strip().lower()
    if media_type and media_type != "application/json" and not media_type.startswith("text/"):
        raise _not_taken(f"a part of type {clean_line(media_type, 80)}")
    if kind == "text":
        return part.text
    if kind == "data":
        return json.dumps(narrow_bounded(plain(part.data)), ensure_ascii=False)
    if kind == "raw" and media_type:
        try:
            text = part.raw.decode()
        except UnicodeDecodeError:
            raise _not_taken("a file that is no text in UTF-8") from None
        return f"{clean_line(part.filename, 200)}:\n{text}" if part.filename else text
    raise _not_taken("a file that it would have to fetch" if kind == "url" else "a part of no known type")


def _not_taken(what: str) -> ContentTypeNotSupportedError:
    return ContentTypeNotSupportedError(
        message=f"this agent takes text and JSON, and the message has {what}",
        data={"hint": "Send text/plain or application/json; files travel by a lease (AWCP)."},
    )


def join_answer(task: Task, artifact_id: str) -> None:
    """Make one text of the pieces of an artifact, in place, so that who reads the task later reads it as one."""
    for artifact in task.artifacts:
        if artifact.artifact_id == artifact_id and len(artifact.parts) > 1:
            whole = "".join(part.text for part in artifact.parts)
            del artifact.parts[1:]
            artifact.parts[0].text = whole


def trim(message: Message) -> None:
    """Take out of ``message``, in place, what must not be stored: the SDK keeps the very object as task history.

    That is the credential of START, and all that nobody here reads: foreign parts, metadata, references.
    """
    kept = [part for part in message.parts if _is_awcp(part)] or list(message.parts)
    del message.parts[:]
    message.parts.extend(kept)
    message.ClearField("metadata")
    message.ClearField("reference_task_ids")
    for part in message.parts:
        part.ClearField("metadata")
        if _is_awcp(part):
            _redact(part.data.struct_value.fields[PART_KEY])


def _is_awcp(part: Part) -> bool:
    return part.WhichOneof("content") == "data" and PART_KEY in part.data.struct_value.fields


def _redact(awcp: Value) -> None:
    body = awcp.struct_value.fields
    if "mount" in body and "credential" in body["mount"].struct_value.fields:
        body["mount"].struct_value.fields["credential"].string_value = REDACTED


def plain(value: Value) -> JsonValue:
    """Return a value as JSON, its numbers as they came.

    Raises:
        RemoteProtocolError: ``DECLINED`` for what is no JSON, such as NaN.
    """
    try:
        return cast("JsonValue", MessageToDict(value))
    except (JsonFormatError, ValueError) as error:  # NaN is a plain ValueError
        raise RemoteProtocolError(
            ErrorCode.DECLINED, f"malformed AWCP message: {error}"[:MAX_REASON_CHARS], "See AWCP section 4."
        ) from None
