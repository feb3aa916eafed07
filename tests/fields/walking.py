"""The models that come from outside, and their fields."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel

from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.config.config_file import ConfigFile
from sublet.policy.capabilities.module_file import CapabilityModule
from sublet.policy.file_model import FileModel
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.gateways.module_file import GatewayModule

ROOTS: Final[dict[str, type[BaseModel]]] = {
    "agent": AgentConfig,
    "config": ConfigFile,
    "delegation": CreateDelegation,
    "module": CapabilityModule,
    "gateway": GatewayModule,
    "policy": FileModel,
}
"""The whole of each document, by the name of its register."""
REGISTERS: Final = Path(__file__).with_name("registers")


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that an annotation names, at any depth of it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(getattr(annotation, "__value__", annotation)):
        yield from models(part)


def fields(root: type[BaseModel]) -> list[str]:
    """Return the fields of a model and of all that it holds, each as ``MODULE:MODEL.FIELD``."""
    found: list[type[BaseModel]] = []
    waiting = [root]
    while waiting:
        model = waiting.pop()
        if model not in found:
            found.append(model)
            for field in model.model_fields.values():
                waiting.extend(models(field.annotation))
                waiting.extend(one for extra in field.metadata for one in models(extra))
    return sorted(f"{one.__module__}:{one.__qualname__}.{name}" for one in found for name in one.model_fields)


def register(name: str) -> dict[str, Any]:
    """Return a register: ``fields`` with a row for each that a test observes, ``unobserved`` for the rest."""
    return tomllib.loads((REGISTERS / f"{name}.toml").read_text(encoding="utf-8"))
