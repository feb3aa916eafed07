"""``module.json`` of a gateway (SuperAgent 8.2)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator, model_validator

from sublet.policy.capabilities.module_file import (
    MAX_MODULE_BYTES,
    MODULE_ID,
    Arguments,
    EnvNames,
    Line,
    ModuleId,
    ModulePart,
    NamedModule,
    bad,
    check_program,
    parse_named,
)
from sublet.protocol.errors import SubletError
from sublet.protocol.gateway import DeliveryMode
from sublet.protocol.strict_model import FROM_LIST
from sublet.supervisor.capabilities.registry import MODULE_FILE, open_module, read_file
from sublet.supervisor.gateways.feed_rules import MAX_RULES, FeedRule

MAX_GATEWAYS: Final = 64
Milliseconds = Annotated[int, Field(ge=10, le=3_600_000)]


class Modes(ModulePart):
    """Which ways of delivery a gateway has, and which it has where nobody says."""

    supported: Annotated[tuple[DeliveryMode, ...], Field(min_length=1, max_length=2), FROM_LIST] = ("sync", "async")
    default: DeliveryMode = "sync"

    @model_validator(mode="after")
    def _consistent(self) -> Modes:
        if self.default not in self.supported:
            raise ValueError("the default is one of those that are supported")
        return self


class Process(ModulePart):
    """The program of a gateway that speaks over its standard input and output, and what it sees of ours."""

    command: Line
    args: Arguments = ()
    environment: EnvNames = ()
    network: bool = False

    @field_validator("command")
    @classmethod
    def _a_program(cls, command: str) -> str:
        check_program(command)
        if command.startswith("./"):
            raise ValueError("a gateway's program is the name of one, or an absolute path")
        return command


class Restart(ModulePart):
    """How often in a row a program that ends is started again, and how long is waited before, doubled each time."""

    max_attempts: Annotated[int, Field(ge=0, le=100)] = 5
    backoff_ms: Milliseconds = 500


class HealthChecks(ModulePart):
    """How often a gateway is asked whether it is well, how long it may take, and after how many failures it is ended.

    It answers each ``ping`` with a ``pong``.
    """

    interval_ms: Milliseconds = 30_000
    timeout_ms: Milliseconds = 3_000
    failures: Annotated[int, Field(ge=1, le=100)] = 3


class GatewayModule(NamedModule):
    """A gateway.

    ``load``: ``start`` with the daemon, ``on_demand`` when something is to be sent, or ``manual``. The time limits
    are for the ack and, of a ``sync`` request, for the result after it. ``feed`` names what it is told of all that
    happens; without ``health`` nobody asks how it is.
    """

    description: Line
    direction: Literal["input", "output", "duplex"]
    protocol: Literal["stdio", "http", "websocket"]
    mode: Modes = Modes()
    load: Literal["start", "on_demand", "manual"] = "start"
    process: Process | None = None
    ack_timeout_ms: Milliseconds = 3_000
    result_timeout_ms: Milliseconds = 60_000
    restart: Restart = Restart()
    health: HealthChecks | None = None
    feed: Annotated[tuple[FeedRule, ...], Field(max_length=MAX_RULES), FROM_LIST] = ()
    default_target: ModuleId | None = None
    enabled: bool = True

    @model_validator(mode="after")
    def _consistent(self) -> GatewayModule:
        if self.feed and self.direction == "input":
            raise ValueError("a gateway whose direction is input takes nothing, so nothing can be fed to it")
        if (self.protocol == "stdio") != (self.process is not None):
            raise ValueError("a gateway has a process where its protocol is stdio, and nowhere else")
        return self


@dataclass(frozen=True, slots=True)
class GatewaySet:
    """All gateways at one moment, and why others are not there."""

    found: Mapping[str, GatewayModule] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)


def parse_gateway(raw: bytes, directory: str) -> GatewayModule:
    """Return what a ``module.json`` says.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` naming what is wrong.
    """
    return parse_named(GatewayModule, raw, directory)


def read_gateways(root: Path) -> GatewaySet:
    """Return the gateways below ``root``; one that can't be used is no problem of the others. Blocks."""
    found: dict[str, GatewayModule] = {}
    problems: dict[str, str] = {}
    try:
        names = sorted(name for name in os.listdir(root) if not name.startswith("."))[:MAX_GATEWAYS]
    except OSError:
        return GatewaySet()
    for name in names:
        directory = root / name
        if not directory.is_dir():
            continue
        try:
            if not MODULE_ID.fullmatch(name):
                raise bad("its directory's name is no id of a module")
            handle = open_module(directory)
            try:
                raw = read_file(handle, MODULE_FILE, MAX_MODULE_BYTES)
            finally:
                os.close(handle)
            if raw is None:
                raise bad("there is none")
            found[name] = parse_gateway(raw, name)
        except SubletError as error:
            problems[str(directory)] = error.message
        except OSError as error:
            problems[str(directory)] = f"can't be read: {error.strerror}"
    return GatewaySet(found, problems)
