"""What MCP servers answer, as A2C-SMCP carries it."""

from __future__ import annotations

import base64
import json
from typing import Any

import mcp.types as t

from sublet.office_client.blobs import INLINE_BYTES, BlobShelf
from sublet.office_client.results import call_answer, failed_call, resource_answer, tool_answer


def result(*content: t.ContentBlock, **fields: Any) -> t.CallToolResult:
    return t.CallToolResult(content=list(content), **fields)


def test_a_result_has_the_names_of_the_protocol() -> None:
    part = t.TextContent(type="text", text="x", _meta={"a": 1})
    told = call_answer(result(part, structured_content={"n": 1}, is_error=True, _meta={"b": 2}), BlobShelf())
    assert told == {
        "content": [{"type": "text", "text": "x", "_meta": {"a": 1}}],
        "isError": True,
        "structuredContent": {"n": 1},
        "meta": {"b": 2},
    }
    assert call_answer(result(), BlobShelf()) == {"content": [], "isError": False}
    assert failed_call("no", a2c_timeout=True) == {
        "content": [{"type": "text", "text": "no"}],
        "isError": True,
        "meta": {"a2c_timeout": True},
    }


def test_large_binaries_get_a_handle_and_small_or_broken_ones_stay() -> None:
    shelf = BlobShelf()
    large = base64.b64encode(b"x" * (INLINE_BYTES + 3)).decode()
    small = base64.b64encode(b"x" * INLINE_BYTES).decode()
    blob = t.BlobResourceContents(uri="file:///a", mime_type="a/b", blob=large)
    parts: list[t.ContentBlock] = [
        t.ImageContent(type="image", data=large, mime_type="image/png", _meta={"kept": True}),
        t.ImageContent(type="image", data=small, mime_type="image/png"),
        t.AudioContent(type="audio", data="!" * len(large), mime_type="audio/wav"),
        t.EmbeddedResource(type="resource", resource=blob),
    ]
    told: Any = call_answer(result(*parts), shelf)["content"]
    assert (told[0]["data"], told[0]["_meta"]["kept"]) == ("", True)
    assert told[0]["_meta"]["a2c_total_size"] == INLINE_BYTES + 3
    assert told[1]["data"] == small
    assert told[2]["data"] == "!" * len(large)
    assert (told[3]["resource"]["blob"], told[3]["resource"]["uri"]) == ("", "file:///a")
    for part, mime_type in ((told[0], "image/png"), (told[3], "a/b")):
        piece: Any = shelf.piece({"blob_handle": part["_meta"]["a2c_blob_handle"]}, "r")
        assert (base64.b64decode(piece["blob"]), piece["mime_type"]) == (b"x" * (INLINE_BYTES + 3), mime_type)


def test_a_tool_and_a_resource_have_the_names_of_the_protocol() -> None:
    about = t.ToolAnnotations(read_only_hint=True)
    tool = t.Tool(name="add", input_schema={"type": "object"}, annotations=about, _meta={"a": {"b": 1}, "c": "d"})
    told: Any = tool_answer("notes", tool)
    assert {name: value for name, value in told.items() if name != "meta"} == {
        "name": "notes__add",
        "bundle_id": "notes",
        "description": "",
        "params_schema": {"type": "object"},
        "return_schema": None,
    }
    assert (told["meta"]["a"], told["meta"]["c"]) == ('{"b": 1}', "d")
    assert json.loads(told["meta"]["MCP_TOOL_ANNOTATION"])["readOnlyHint"] is True
    annotations = t.Annotations(audience=["user"], priority=0.5, last_modified="2026-01-01T00:00:00Z")
    resource = t.Resource(
        uri="window://a", name="a", mime_type="text/plain", size=3, annotations=annotations, title="T"
    )
    assert resource_answer(resource) == {
        "uri": "window://a",
        "name": "a",
        "mime_type": "text/plain",
        "size": 3,
        "annotations": {"audience": ["user"], "priority": 0.5, "last_modified": "2026-01-01T00:00:00Z"},
    }
