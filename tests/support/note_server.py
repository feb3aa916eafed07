"""A minimal MCP server over stdio that keeps notes: ``add`` returns an id, ``read`` returns the note of an id."""

from __future__ import annotations

import json
import sys
from typing import Any

JsonObject = dict[str, Any]


def _tool(name: str, argument: str) -> JsonObject:
    schema = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"name": name, "description": f"{name} a note", "inputSchema": schema}


TOOLS = [_tool("add", "text"), _tool("read", "note_id")]


def _call(notes: dict[str, str], name: str, arguments: JsonObject) -> JsonObject:
    if name == "add":
        note_id = f"note-{len(notes) + 1}"
        notes[note_id] = arguments["text"]
        return _result({"note_id": note_id}, is_error=False)
    text = notes.get(arguments["note_id"])
    return _result({"text": text} if text is not None else {"error": "no such note"}, is_error=text is None)


def _result(structured: JsonObject, *, is_error: bool) -> JsonObject:
    content = [{"type": "text", "text": json.dumps(structured)}]
    return {"content": content, "structuredContent": structured, "isError": is_error}


def _answer(notes: dict[str, str], method: str, params: JsonObject) -> JsonObject:
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "notes", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return _call(notes, params["name"], params["arguments"])
    return {}


def main() -> None:
    """Serve until EOF."""
    notes: dict[str, str] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            result = _answer(notes, request["method"], request.get("params", {}))
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
