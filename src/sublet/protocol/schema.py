"""JSON Schema of the AWCP messages as Sublet speaks them, incl. the ``sublet`` object (DESIGN 4.2)."""

from __future__ import annotations

from typing import TypeAlias, cast

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from sublet.protocol.canonical import JsonValue
from sublet.protocol.messages import Accept, Done, Error, Invite, Progress, Start

SCHEMA_ID = "urn:sublet:schema:awcp-sublet-v1"
DIALECT = "https://json-schema.org/draft/2020-12/schema"

JsonObject: TypeAlias = dict[str, JsonValue]
_MESSAGES: tuple[type[BaseModel], ...] = (Invite, Accept, Start, Done, Error, Progress)


def awcp_schema() -> JsonObject:
    """Return the JSON Schema (2020-12) of the object under the ``awcp`` key, made from the message models.

    ``PROGRESS`` is not a message of the spec; it travels in status metadata under the extension's URI.
    """
    refs, document = models_json_schema(
        [(model, "validation") for model in _MESSAGES], ref_template="#/$defs/{model}", by_alias=False
    )
    definitions = cast("dict[str, JsonObject]", document["$defs"])
    for definition in definitions.values():
        _require_constants(definition)
    return {
        "$schema": DIALECT,
        "$id": SCHEMA_ID,
        "title": "AWCP v1 messages with the sublet object",
        "description": "Unknown fields are ignored. Everything Sublet adds to AWCP v1 is below the key 'sublet'.",
        "oneOf": [cast("JsonValue", refs[model, "validation"]) for model in _MESSAGES],
        "$defs": cast("JsonValue", definitions),
    }


def _require_constants(definition: JsonObject) -> None:
    """Require what tells a message apart: ``type``, and ``version`` of INVITE, have defaults only for our own code."""
    properties = cast("dict[str, JsonObject]", definition.get("properties", {}))
    constants: list[JsonValue] = [name for name, schema in properties.items() if "const" in schema]
    if constants:
        required = cast("list[JsonValue]", definition.get("required", []))
        definition["required"] = [*constants, *(name for name in required if name not in constants)]
