"""Draws the documents of the control API from its operations: ``docs/control-api.md`` and ``docs/openapi.json``.

Neither is written by hand; a test compares both with what is drawn here. Nothing of this is loaded by a daemon.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

import sublet.daemon.api
from sublet.daemon.api.operation import IN_THE_QUERY, AnyOperation, Asks, Feed, Nothing, Operation, Streaming

ANY_KIND = "*"
"""Stands for each kind of a feed's events, which have one model."""
_REFERENCE = "#/components/schemas/{model}"

INTRODUCTION = """\
# The control API

*This page is drawn from the code: `make documents`. `docs/openapi.json` says the same for programs.*

The command line speaks with the daemon by HTTP over a Unix socket, `control.sock` in the runtime directory that
`sublet config show` names. Your own programs can do the same:

```sh
curl --unix-socket "$XDG_RUNTIME_DIR/sublet/control.sock" -H "Host: sublet" http://sublet/v1/policy
```

- Only processes of the same user get an answer. The daemon knows by the process whether a person or one of its own
  agents asks, and policy decides what either may do. The `Host` must be `sublet`, and nothing that a browser sends is
  accepted.
- Arguments that are not in the path go into the query of `GET` and `DELETE`, and into a JSON object in the body of
  `POST` and `PATCH`. Names that are not listed, and names that come twice, are refused with status 422.
- An answer is JSON. A failure has a status of 400 or more and the body
  `{"error": {"code": …, "message": …, "hint": …}}`; `docs/errors.md` lists the codes.
- A stream is `text/event-stream`. Each event has a kind and one JSON object; the kind `error` ends a stream that fails.
- "Asks policy" says which action policy is asked for, on which resource, and in brackets what its rules can look at.
"""


def declarations() -> Iterator[tuple[ModuleType, dict[str, AnyOperation]]]:
    """Yield the modules that declare operations, each with its operations by the names of their constants."""
    for found in pkgutil.iter_modules(sublet.daemon.api.__path__, "sublet.daemon.api."):
        module = importlib.import_module(found.name)
        stated = {name: one for name, one in vars(module).items() if isinstance(one, (Operation, Streaming, Feed))}
        if stated:
            yield module, stated


def markdown() -> str:
    """Return ``docs/control-api.md``."""
    parts = [INTRODUCTION]
    for module, stated in declarations():
        parts.append(f"## {title_of(module)}\n")
        parts += [_section(one) for one in stated.values()]
    return "\n".join(parts)


def title_of(module: ModuleType) -> str:
    """Return what the operations of a module are about: its docstring begins with ``Operations on …:``."""
    about = (inspect.getdoc(module) or "").removeprefix("Operations on ").partition(":")[0]
    return about[:1].upper() + about[1:]


def openapi() -> str:
    """Return ``docs/openapi.json``: an OpenAPI 3.1 document."""
    stated = [one for _, operations in declarations() for one in operations.values()]
    schemas, definitions = _schemas(stated)
    paths: dict[str, dict[str, Any]] = {}
    for one in stated:
        paths.setdefault(one.path, {})[one.method.lower()] = _path_item(one, schemas, definitions)
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Sublet control API", "version": "1"},
        "servers": [{"url": "http://sublet", "description": "the control socket"}],
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": _used(paths, definitions)},
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _section(operation: AnyOperation) -> str:
    lines = [f"### {operation.name}", "", f"`{operation.method} {operation.path}`: {operation.summary}", ""]
    if operation.request is not Nothing:
        lines += ["| argument | where | type | |", "|---|---|---|---|"]
        lines += [_argument(operation, name, field) for name, field in operation.request.model_fields.items()]
        lines.append("")
    lines += [f"- Answers {_answer(operation)}.", f"- Asks policy {_policy(operation)}.", ""]
    return "\n".join(lines)


def _argument(operation: AnyOperation, name: str, field: FieldInfo) -> str:
    where = "path" if name in operation.path_fields else "query" if operation.method in IN_THE_QUERY else "body"
    schema = TypeAdapter(operation.request).json_schema(ref_template=_REFERENCE)["properties"][name]
    said = "required" if field.is_required() else _default(schema)
    return f"| `{name}` | {where} | {_type(schema)} | {said} |"


def _default(schema: dict[str, Any]) -> str:
    return f"default `{json.dumps(schema['default'])}`" if schema.get("default") is not None else "may be left out"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"] if one.get("type") != "null")
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    bounds = ((schema.get(low), schema.get(high), what) for low, high, what in _BOUNDS)
    told = [f"{_range(low, high)}{what}" for low, high, what in bounds if low is not None or high is not None]
    kind = schema.get("type", "anything")
    if kind == "array":
        kind = f"array of {_type(schema.get('items', {}))}"
    return f"{kind} ({'; '.join(told)})" if told else str(kind)


_BOUNDS = (
    ("minimum", "maximum", ""),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " items"),
    ("minProperties", "maxProperties", " fields"),
)


def _range(low: object, high: object) -> str:
    if high is None:
        return f"{low} or more"
    return f"at most {high}" if low is None else f"{low} to {high}"


def _answer(operation: AnyOperation) -> str:
    if isinstance(operation, Feed):
        return f"a stream of `{operation.event.__name__}` without end; `Last-Event-ID` goes before `cursor`"
    if isinstance(operation, Streaming):
        return "a stream: " + ", ".join(f"`{kind}` ({model.__name__})" for kind, model in operation.events.items())
    args = getattr(operation.answer, "__args__", ())
    what = f"a list of `{args[0].__name__}`" if args else f"`{operation.answer.__name__}`"
    return what if operation.status == 200 else f"{what} with status {operation.status}"


def _policy(operation: AnyOperation) -> str:
    if isinstance(operation.asks, Asks):
        attributes = f" [{', '.join(operation.asks.attributes)}]" if operation.asks.attributes else ""
        return f"`{operation.asks.action}` on `{operation.asks.resource}`{attributes}"
    return (
        f"{', '.join(f'`{action}`' for action in operation.asks.actions)} while it runs, since {operation.asks.reason}"
    )


def _schemas(stated: list[AnyOperation]) -> tuple[dict[Any, Any], dict[str, Any]]:
    """Return the schema of each request, answer and event by operation and role, and the definitions they share."""
    inputs: list[tuple[Any, Any, TypeAdapter[Any]]] = []
    for operation in stated:
        inputs.append(((operation.name, "request"), "validation", TypeAdapter(operation.request)))
        if isinstance(operation, Feed):
            inputs.append(((operation.name, ANY_KIND), "serialization", TypeAdapter(operation.event)))
        elif isinstance(operation, Streaming):
            inputs += [
                ((operation.name, kind), "serialization", TypeAdapter(model))
                for kind, model in operation.events.items()
            ]
        else:
            inputs.append(((operation.name, "answer"), "serialization", TypeAdapter(operation.answer)))
    made, shared = TypeAdapter.json_schemas(inputs, ref_template=_REFERENCE)
    return {key: schema for (key, _), schema in made.items()}, shared.get("$defs", {})


def _path_item(operation: AnyOperation, schemas: dict[Any, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    request = _resolved(schemas[operation.name, "request"], definitions)
    properties, required = request.get("properties", {}), set(request.get("required", ()))
    in_query, status = operation.method in IN_THE_QUERY, str(getattr(operation, "status", 200))
    item: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [
            {
                "name": name,
                "in": "path" if name in operation.path_fields else "query",
                "required": name in required,
                "schema": schema,
            }
            for name, schema in properties.items()
            if in_query or name in operation.path_fields
        ],
        "responses": {status: {"description": "the answer", "content": _content(operation, schemas)}},
        "x-policy": _policy(operation),
    }
    body = {name: schema for name, schema in properties.items() if name not in operation.path_fields}
    if not in_query:
        schema = {
            "type": "object",
            "properties": body,
            "required": sorted(required & body.keys()),
            "additionalProperties": False,
        }
        item["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return item


def _content(operation: AnyOperation, schemas: dict[Any, Any]) -> dict[str, Any]:
    if isinstance(operation, (Streaming, Feed)):
        kinds = operation.events if isinstance(operation, Streaming) else (ANY_KIND,)
        events = {kind: schemas[operation.name, kind] for kind in kinds}
        return {"text/event-stream": {"schema": {"type": "string"}, "x-events": events}}
    return {"application/json": {"schema": schemas[operation.name, "answer"]}}


def _used(paths: object, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the definitions that ``paths`` refer to, and those that these refer to."""
    used: dict[str, Any] = {}

    def use(schema: object) -> None:
        if isinstance(schema, list):
            for one in schema:
                use(one)
        elif isinstance(schema, dict):
            name = str(schema.get("$ref", "")).rpartition("/")[2]
            if name and name not in used:
                used[name] = definitions[name]
                use(used[name])
            for one in schema.values():
                use(one)

    use(paths)
    return dict(sorted(used.items()))


def _resolved(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema that a reference names."""
    found: dict[str, Any] = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found
