"""How tools are told to hosts: names, words, and schemas without what no host reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp.types as t
from pydantic import BaseModel

from sublet.mcp_server.tool import Tool


def describe(tool: Tool[Any]) -> t.Tool:
    """Return a tool as hosts are told of it: its words, the schemas of arguments and answer, and what it may do."""
    return t.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=_schema(tool.arguments),
        output_schema=_trimmed(tool.answer),
        annotations=t.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.read_only,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent,
            open_world_hint=not tool.read_only,
        ),
    )


def _schema(model: type[BaseModel]) -> dict[str, object]:
    """Return the JSON Schema of ``model`` without what only repeats names; a model reads it with every request."""
    schema = _without_titles(model.model_json_schema())
    schema.pop("description", None)
    properties = schema.get("properties")
    if isinstance(properties, dict):
        schema["properties"] = {name: _without_null(field) for name, field in properties.items()}
    return schema


def _without_null(field: dict[str, object]) -> dict[str, object]:
    """Return a field that may be left out as what it is where it is given: null says the same as leaving it out."""
    choices = [choice for choice in _choices(field) if choice.get("type") != "null"]
    if len(choices) != 1 or field.get("default", "") is not None:
        return field
    return {**choices[0], **{name: value for name, value in field.items() if name not in ("anyOf", "default")}}


def _trimmed(model: type[BaseModel]) -> dict[str, object]:
    """Return the JSON Schema of an answer by the kinds of its own fields, which is all that hosts check.

    Words and inner fields are left out: hosts load every list of tools whole, and a model reads the answers themselves.
    Fields that say nothing are left out of answers, so none is null.
    """
    whole = model.model_json_schema(mode="serialization")
    properties: Mapping[str, Mapping[str, object]] = whole["properties"]
    kinds = {name: _kind(field, whole.get("$defs", {})) for name, field in properties.items()}
    required = [name for name in whole.get("required", ()) if not _may_be_null(properties[name])]
    return {"type": "object", "properties": kinds, "required": required}


def _choices(field: Mapping[str, object]) -> list[Mapping[str, object]]:
    found = field.get("anyOf")
    return found if isinstance(found, list) else [field]


def _may_be_null(field: Mapping[str, object]) -> bool:
    return any(choice.get("type") == "null" for choice in _choices(field))


def _kind(field: Mapping[str, object], apart: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    (choice,) = [choice for choice in _choices(field) if choice.get("type") != "null"]
    if "$ref" in choice:
        choice = apart[str(choice["$ref"]).rpartition("/")[2]]
    return {"type": choice["type"]} if "type" in choice else {}


def _without_titles(schema: Mapping[str, object]) -> dict[str, object]:
    return {
        key: _without_titles(value) if isinstance(value, dict) else value
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }
