"""The documents that come from outside, and the fields of each: of models, of A2A's messages, of a room's config."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, cast, get_args

from a2a import types as a2a
from google.protobuf.message import Message as Proto
from pydantic import BaseModel

import sublet.daemon.api
from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.api.operation import Stated
from sublet.daemon.config.config_file import ConfigFile
from sublet.daemon.ports.given_to_a2a import Moved, PairRequest
from sublet.federation.settings import Settings
from sublet.mcp_server.catalogue import TOOLS
from sublet.policy.capabilities.module_file import CapabilityModule
from sublet.policy.file_model import FileModel
from sublet.protocol import gateway, messages
from sublet.protocol.ezagent.room.table import ADMIN_FIELDS, LEVELS
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.gateways.module_file import GatewayModule

REGISTERS: Final = Path(__file__).with_name("registers")
ROOM: Final = "room"
"""Stands for the module of a room's config, whose fields are paths."""


def requests() -> list[type]:
    """Return the request of every operation that the daemon declares: HTTP paths, queries and bodies."""
    found: dict[type, None] = {}
    for place in pkgutil.iter_modules(sublet.daemon.api.__path__):
        module = importlib.import_module(f"{sublet.daemon.api.__name__}.{place.name}")
        found |= {one.request: None for one in vars(module).values() if isinstance(one, Stated)}
    return list(found)


A2A_MESSAGES: Final[Sequence[type]] = (
    a2a.SendMessageRequest,
    a2a.SendMessageConfiguration,
    a2a.Message,
    a2a.Part,
    a2a.GetTaskRequest,
    a2a.ListTasksRequest,
    a2a.CancelTaskRequest,
    a2a.SubscribeToTaskRequest,
)
"""What A2A clients send."""
ROOM_FIELDS: Final = (
    *(".".join(path) for path in ADMIN_FIELDS if path != ("timeline",)),
    "timeline.max_refs_per_window",
    "timeline.window_size",
    "membership.members.*",
    "membership.knocks.*",
    "power_levels.users.*",
    *(f"power_levels.{name}" for name in LEVELS),
    "ext.*.power_level",
    "ext.watch.*",
)
"""Paths in a room's config; ``*`` is one part of it."""
ROOTS: Final[dict[str, Sequence[type]]] = {
    "agent": [AgentConfig],
    "delegation": [CreateDelegation],
    "awcp": [messages.Invite, messages.Accept, messages.Start, messages.Done, messages.Error, messages.Progress],
    "policy": [FileModel],
    "config": [ConfigFile],
    "federation": [Settings],
    "http": [*requests(), PairRequest, Moved],
    "mcp": [tool.arguments for tool in TOOLS],
    "module": [CapabilityModule],
    "gateway": [
        GatewayModule,
        gateway.GatewayAck,
        gateway.GatewayResult,
        gateway.GatewayInput,
        gateway.GatewayEvent,
        gateway.GatewayPong,
    ],
    "a2a": A2A_MESSAGES,
    "room": [],
}
"""The whole of each document, by the name of its register. A field belongs to the first document that has it."""


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that an annotation names, at any depth of it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(getattr(annotation, "__value__", annotation)):
        yield from models(part)


def closure(roots: Sequence[type]) -> list[type]:
    """Return models with all that they hold."""
    found: list[type] = []
    waiting = list(roots)
    while waiting:
        model = waiting.pop()
        if model in found or model.__name__.startswith("_"):
            continue
        found.append(model)
        if issubclass(model, BaseModel):
            for field in model.model_fields.values():
                waiting.extend(models(field.annotation))
                waiting.extend(one for extra in field.metadata for one in models(extra))
    return found


def names(model: type) -> list[str]:
    """Return the names of a model's fields."""
    if issubclass(model, BaseModel):
        return list(model.model_fields)
    if issubclass(model, Proto):
        return [field.name for field in model.DESCRIPTOR.fields]
    return [field.name for field in dataclasses.fields(cast("Any", model))]


def name_of(model: type) -> str:
    """Return the first part of the names of a model's fields."""
    module = a2a.__name__ if issubclass(model, Proto) else model.__module__
    return f"{module}:{model.__qualname__}"


@cache
def fields(name: str) -> tuple[str, ...]:
    """Return the fields of a document, each as ``MODULE:MODEL.FIELD``, but for those of documents before it."""
    before: set[str] = set()
    for earlier, roots in ROOTS.items():
        own = {f"{name_of(model)}.{field}" for model in closure(roots) for field in names(model)}
        if earlier == ROOM:
            own = {f"{ROOM}:{path}" for path in ROOM_FIELDS}
        if earlier == name:
            return tuple(sorted(own - before))
        before |= own
    raise KeyError(name)


def register(name: str) -> dict[str, Any]:
    """Return a register: ``fields`` with a row for each, ``unobserved`` with the reason for each that has none."""
    path = REGISTERS / f"{name}.toml"
    told: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {"fields": told.get("fields", {}), "unobserved": told.get("unobserved", {})}
