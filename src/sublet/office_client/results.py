"""What MCP servers answer, in the form in which A2C-SMCP carries it.

A result is that of MCP with one difference: what is said of the whole of it stands under ``meta``, without the
underscore that its parts have. Binaries of more than 32 KiB are taken out and get a handle.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any, cast

from sublet.office_client.blobs import INLINE_BYTES, BlobShelf
from sublet.protocol.canonical import JsonValue
from sublet.protocol.offices.answers import Answer
from sublet.protocol.offices.tool_names import exposed_name

if TYPE_CHECKING:
    from mcp.types import CallToolResult, Resource, Tool


def failed_call(text: str, **meta: JsonValue) -> Answer:
    """Return the result of a call that no tool has answered."""
    found: Answer = {"content": [{"type": "text", "text": text}], "isError": True}
    return {**found, "meta": meta} if meta else found


def call_answer(result: CallToolResult, shelf: BlobShelf) -> Answer:
    """Return a result as it is sent; large binaries are put on ``shelf``."""
    told = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    content = [_without_large(part, shelf) for part in told.get("content", [])]
    answer: Answer = {"content": content, "isError": bool(told.get("isError", False))}
    if (structured := told.get("structuredContent")) is not None:
        answer["structuredContent"] = structured
    if meta := told.get("_meta"):
        answer["meta"] = meta
    return answer


def _without_large(part: dict[str, Any], shelf: BlobShelf) -> JsonValue:
    resource = part.get("resource")
    place, name = (resource, "blob") if isinstance(resource, dict) else (part, "data")
    encoded = place.get(name)
    if not isinstance(encoded, str) or len(encoded) <= INLINE_BYTES:
        return part
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return part  # the tool's own affair
    if len(data) <= INLINE_BYTES:
        return part
    mime_type = place.get("mimeType")
    handle, digest = shelf.put(data, mime_type if isinstance(mime_type, str) else "application/octet-stream")
    about = {"a2c_blob_handle": handle, "a2c_total_size": len(data), "a2c_sha256": digest}
    meta = part.get("_meta")
    return {**part, **_blanked(part, name), "_meta": {**(meta if isinstance(meta, dict) else {}), **about}}


def _blanked(part: dict[str, Any], name: str) -> dict[str, Any]:
    return {"data": ""} if name == "data" else {"resource": {**part["resource"], "blob": ""}}


def tool_answer(bundle_id: str, tool: Tool) -> Answer:
    """Return a tool as it is listed; whatever is not plain in what is said of it becomes JSON in a string."""
    meta: dict[str, JsonValue] = {}
    for name, value in (tool.meta or {}).items():
        meta[name] = value if value is None or isinstance(value, str | int | float | bool) else json.dumps(value)
    if tool.annotations is not None:
        meta["MCP_TOOL_ANNOTATION"] = json.dumps(tool.annotations.model_dump(mode="json", by_alias=True))
    return {
        "name": exposed_name(bundle_id, tool.name),
        "bundle_id": bundle_id,
        "description": tool.description or "",
        "params_schema": cast("JsonValue", tool.input_schema),
        "return_schema": cast("JsonValue", tool.output_schema),
        "meta": meta,
    }


def resource_answer(resource: Resource) -> Answer:
    """Return a resource as it is listed."""
    told = resource.model_dump(mode="json", by_alias=True, exclude_none=True)
    names = {
        "uri": "uri",
        "name": "name",
        "description": "description",
        "mimeType": "mime_type",
        "size": "size",
        "_meta": "_meta",
    }
    answer: Answer = {ours: told[theirs] for theirs, ours in names.items() if theirs in told}
    if annotations := told.get("annotations"):
        renamed = {"lastModified": "last_modified"}
        answer["annotations"] = {renamed.get(name, name): value for name, value in annotations.items()}
    return answer
