"""Lets what comes from outside be read as if one of its fields were absent, in this process.

Each model is hooked once, before anything reads it. A field that may be absent gets its default, after the model has
checked the rest; one that has to be there is taken away from the model that was read, so that whoever reads it fails:
else every test would turn red, whether anybody reads the field or not. So a test that only sees that a wrong value is
refused observes nothing: a field needs an effect.

Weak: a daemon in a process of its own is not reached.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, cast, get_origin

from a2a import types as a2a
from google.protobuf.message import Message as Proto
from pydantic import BaseModel, GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, core_schema

from fields.walking import ROOM, ROOM_FIELDS, ROOTS, closure, name_of
from sublet.a2a_server.handler import SubletRequestHandler
from sublet.protocol.ezagent.room import fold
from sublet.protocol.ezagent.room.statements import NestedMap, Statement
from sublet.protocol.ezagent.yjs.update import ItemId

_ABSENT: Final = object()
READ_BY_VALIDATION: Final = frozenset(
    {
        "sublet.daemon.api.panels:CreatePanel.resources",
        "sublet.federation.settings:HttpSettings.allow_plaintext",
        "sublet.supervisor.model_config:McpServerConfig.allow_plaintext",
        "sublet.supervisor.model_config:ModelConfig.allow_plaintext",
    }
)
"""Fields that only let others be accepted, or that a model shares with others and refuses in words of its own: these
are dropped before the model reads its input."""
_A2A_CALLS: Final = (
    "on_message_send",
    "on_message_send_stream",
    "on_get_task",
    "on_list_tasks",
    "on_cancel_task",
    "on_subscribe_to_task",
)


@dataclasses.dataclass
class State:
    """What is dropped, and what was seen.

    Args:
        dropped: name of a field; empty for none.
        seen: the fields that were given another value than their default, where somebody wants to know.
    """

    dropped: str = ""
    seen: set[str] | None = None


STATE: Final = State()


def hook() -> None:
    """Hook all that is in a register; nothing changes until ``STATE`` says so."""
    for model in {model for roots in ROOTS.values() for model in closure(roots)}:
        if not issubclass(model, Proto):
            _hook(model)
    built = [model for model in _below(BaseModel) if model.__pydantic_complete__ and model.__module__ != "pydantic"]
    for model in built:
        model.model_rebuild(force=True)
    for adapter in [one for one in gc.get_objects() if type(one) is TypeAdapter]:
        adapter.rebuild(force=True, raise_errors=False)
    for call in _A2A_CALLS:
        setattr(SubletRequestHandler, call, _without_fields(getattr(SubletRequestHandler, call)))
    fold._placed = _placed_without(fold._placed)


def _below(base: type[BaseModel]) -> set[type[BaseModel]]:
    return {one for direct in base.__subclasses__() for one in (direct, *_below(direct)) if "sublet" in one.__module__}


def _hook(model: type) -> None:
    defaults = _model_defaults(model) if issubclass(model, BaseModel) else _dataclass_defaults(model)
    prefix = name_of(model) + "."

    def changed(value: Any) -> Any:
        if STATE.seen is not None:
            STATE.seen |= {prefix + name for name, default in defaults.items() if _is_given(value, name, default())}
        if STATE.dropped.startswith(prefix):
            _lose(value, name := STATE.dropped.removeprefix(prefix), defaults[name]())
        return value

    def unread(value: Any) -> Any:
        if not STATE.dropped.startswith(prefix) or not isinstance(value, dict):
            return value
        return {name: one for name, one in value.items() if prefix + name != STATE.dropped}

    def schema(_: type, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        inner = handler(source)
        if source is not model:
            return inner
        if any(name.startswith(prefix) for name in READ_BY_VALIDATION):
            inner = core_schema.no_info_before_validator_function(unread, inner)
        return core_schema.no_info_after_validator_function(changed, inner)

    model.__get_pydantic_core_schema__ = classmethod(schema)  # type: ignore[attr-defined]


def _model_defaults(model: type[BaseModel]) -> dict[str, Callable[[], Any]]:
    """Return for each field what makes its default; what is required, or can only have one value, has none."""

    def default(name: str) -> Any:
        field = model.model_fields[name]
        if field.is_required() or (get_origin(field.annotation) is Literal and _is_tag(field.annotation)):
            return _ABSENT
        return field.get_default(call_default_factory=True, validated_data={})

    return {name: functools.partial(default, name) for name in model.model_fields}


def _is_tag(annotation: Any) -> bool:
    return len(annotation.__args__) == 1


def _dataclass_defaults(model: type) -> dict[str, Callable[[], Any]]:
    def default(field: dataclasses.Field[Any]) -> Any:
        return _ABSENT if field.default is dataclasses.MISSING else field.default

    return {field.name: functools.partial(default, field) for field in dataclasses.fields(model)}


def _is_given(value: Any, name: str, default: Any) -> bool:
    if isinstance(value, BaseModel) and name not in value.__dict__:
        return False
    return default is _ABSENT or bool(getattr(value, name) != default)


def _lose(value: Any, name: str, default: Any) -> None:
    if isinstance(value, BaseModel):
        value.__pydantic_fields_set__.discard(name)
        if default is _ABSENT:
            value.__dict__.pop(name, None)
        else:
            value.__dict__[name] = default
    elif default is _ABSENT:
        object.__delattr__(value, name)
    else:
        object.__setattr__(value, name, default)


def _without_fields(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call of the A2A handler that loses a field of its parameters first."""

    @functools.wraps(call)
    def changed(self: Any, params: Proto, *more: Any, **named: Any) -> Any:
        _strip(params)
        return call(self, params, *more, **named)

    return changed


def _strip(message: Proto) -> None:
    place = f"{a2a.__name__}:{message.DESCRIPTOR.name}."
    for field, value in message.ListFields():
        if not message.DESCRIPTOR.full_name.startswith("google."):
            if STATE.seen is not None:
                STATE.seen.add(place + field.name)
            if STATE.dropped == place + field.name:
                message.ClearField(field.name)
                continue
        if isinstance(value, Proto):
            _strip(value)
        elif field.type == field.TYPE_MESSAGE:
            for one in value if not isinstance(value, Mapping) else ():
                _strip(one)


Placed = dict[ItemId, Statement]


def _placed_without(placed: Callable[..., Placed]) -> Callable[..., Placed]:
    """Return what places the statements of a room's config, without those about a field."""

    def changed(known: Mapping[ItemId, Statement], start: Statement) -> Placed:
        found: Placed = {}
        for id, statement in placed(known, start).items():
            about = room_fields(statement)
            if STATE.seen is not None:
                STATE.seen |= about
            if STATE.dropped not in about:
                found[id] = statement
            elif statement.path == ("timeline",):
                left = dict(cast("dict[str, Any]", statement.value))
                left.pop(STATE.dropped.rpartition(".")[2], None)
                found[id] = dataclasses.replace(statement, value=left)
        return found

    return changed


def room_fields(statement: Statement) -> set[str]:
    """Return the fields of a room's config that a statement is about."""
    if isinstance(statement.value, NestedMap):
        return set()
    paths = [statement.path]
    if statement.path == ("timeline",) and isinstance(statement.value, dict):
        paths = [("timeline", name) for name in statement.value]
    patterns = [tuple(field.split(".")) for field in ROOM_FIELDS]
    return {
        f"{ROOM}:{'.'.join(pattern)}"
        for path in paths
        for pattern in patterns
        if len(path) == len(pattern) and all(wanted in ("*", part) for wanted, part in zip(pattern, path, strict=True))
    }
