"""``agent.json``: which agents this daemon offers, and what does their work (SuperAgent 7.3 plus the card's needs).

Names are the spec's. A field whose promise can't be kept in this version is refused when the file is loaded, unless it
promises nothing: a rule that nobody enforces is worse than none (DESIGN 7).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal, TypeVar, cast

from pydantic import (
    BeforeValidator,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from sublet.disk.plain_file import read_plain
from sublet.policy.request_rules import Narrowing
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.faults import fault_words
from sublet.protocol.strict_model import read_strictly
from sublet.protocol.text import clean_line
from sublet.protocol.unique_json import unique_json
from sublet.supervisor.config_parts import ConfigPart, Directory, Id, Line, Variable
from sublet.supervisor.governance_config import GOVERNING, GovernanceConfig, ToolsConfig, check_governance, check_tools
from sublet.supervisor.model_config import MAX_MCP_SERVERS, McpServerConfig, ModelConfig, ServerName
from sublet.supervisor.presets import PRESETS
from sublet.supervisor.provider_config import (
    PROVIDER_TYPES,
    AcpConfig,
    IflowConfig,
    PresetConfig,
    ProviderConfig,
    check_workers,
)

MAX_AGENT_FILE_BYTES = 1 << 20
MAX_AGENTS = 64
ValueT = TypeVar("ValueT")

SCHEMA_ID = "urn:sublet:schema:agent"
RESUMELESS = frozenset({"command", "preset", "super"})
"""Types of providers that begin anew each time."""
DEFAULT_AGENT_FILE = Path(__file__).with_name("agent.json")
"""What is offered where nothing is configured; in the repository it is the ``agent.json`` at its root."""


class SessionConfig(ConfigPart):
    """How an agent's own sessions are bound to those of this daemon (SuperAgent 7.3)."""

    binding_scope: Literal["finger", "finger+agent"] = Field(
        default="finger+agent",
        alias="bindingScope",
        description="Whether the agent has a session of its own in each, or shares one with all agents of its provider",
    )
    resume: bool | None = Field(
        default=None,
        description="Whether it goes on with the session it had before; by default where its provider can",
    )


def _boolean(value: object) -> object:
    """Return ``value``; 1 equals true in Python and is none in JSON."""
    if not isinstance(value, bool):
        raise ValueError("Input should be true")
    return value


class SandboxConfig(ConfigPart):
    """What the agent may do here (AWCP 7.2)."""

    cwd_only: Annotated[Literal[True], BeforeValidator(_boolean)] = Field(
        default=True, description="The agent sees its lease, and what 'readable' names"
    )
    allow_network: bool | None = Field(
        default=None, description="Whether it shares this machine's network; by default what a preset needs, else not"
    )
    allow_exec: bool = Field(
        default=True, description="Whether it may start programs; only what runs no program itself can be kept from it"
    )
    readable: Annotated[tuple[Directory, ...], Field(max_length=64)] = Field(
        default=(),
        description="Directories and files it may read beyond the system's programs; '~' is the owner's home",
    )


Bytes = Annotated[int, Field(ge=1 << 20, le=1 << 50)]


class LimitsConfig(ConfigPart):
    """How much of this machine one task may use; ``null`` takes a limit away. Who meets one is ended and told which."""

    memory_bytes: Bytes | None = Field(default=4 << 30, description="Of all its processes together")
    processes: Annotated[int, Field(ge=4, le=1 << 20)] | None = Field(
        default=2_048, description="That run at once; in a control group threads count as well"
    )
    cpu_seconds: Annotated[int, Field(ge=1, le=1 << 30)] | None = Field(
        default=8 * 3600, description="Processor time of all its processes together"
    )
    output_bytes: Annotated[int, Field(ge=1024, le=1 << 50)] | None = Field(
        default=256 << 20, description="What it may print; of that, the first and the last megabyte are kept"
    )
    scratch_bytes: Bytes | None = Field(
        default=4 << 30, description="Its home and its temporary directory; and again as much in /tmp, in memory"
    )


class RoutingConfig(ConfigPart):
    """What the supervisor weighs where several agents could do the same."""

    cost: Annotated[float, Field(ge=0, le=1_000_000)] = Field(default=1, description="Relative to the other agents")
    trust: Annotated[float, Field(ge=0, le=1)] = Field(default=1, description="How far you trust it, from 0 to 1")


class Skill(ConfigPart):
    """One skill of the agent card."""

    id: Id
    name: Line
    description: Line
    tags: Annotated[tuple[Line, ...], Field(min_length=1, max_length=32)]
    examples: Annotated[tuple[Line, ...], Field(max_length=32)] = ()


class AgentConfig(ConfigPart):
    """One agent of ``agent.json``."""

    id: Id = "agent"
    role: Id = Field(default="executor", description="Role for which policy may have rules: executor, reviewer, …")
    name: Line = Field(default="", validate_default=False, description="Name on the card; by default the id")
    description: Annotated[str, StringConstraints(max_length=2000)] = ""
    version: Line = "1.0.0"
    provider: ProviderConfig
    session: SessionConfig = SessionConfig()
    tools: ToolsConfig = ToolsConfig()
    governance: GovernanceConfig = Field(default_factory=dict)
    skills: Annotated[tuple[Skill, ...], Field(max_length=64)] = ()
    routing: RoutingConfig = RoutingConfig()
    sandbox: SandboxConfig = SandboxConfig()
    limits: LimitsConfig = LimitsConfig()
    environment: Annotated[tuple[Variable, ...], Field(max_length=128)] = Field(
        default=(), description="Names of the daemon's environment variables that the agent gets"
    )
    mcp_servers: Annotated[dict[ServerName, McpServerConfig], Field(max_length=MAX_MCP_SERVERS)] = Field(
        default_factory=dict,
        alias="mcpServers",
        description="MCP servers whose tools the model may call as mcp.SERVER.TOOL, as far as policy allows each",
    )
    timeout_seconds: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="Longest run of one task; the lease may end it earlier"
    )

    @property
    def resumes(self) -> bool:
        """Whether it goes on with the session it had before, where its provider can."""
        return self.session.resume is not False

    @property
    def display_name(self) -> str:
        """Name for people."""
        return self.name or self.id

    @property
    def allow_network(self) -> bool:
        """Whether the agent shares the host's network."""
        chosen = self.sandbox.allow_network
        return self._needs_network if chosen is None else chosen

    @property
    def _needs_network(self) -> bool:
        """Whether the provider is of no use without: so it is with well-known agents, whose model is elsewhere."""
        if isinstance(self.provider, PresetConfig):
            return PRESETS[self.provider.name].needs_network
        return isinstance(self.provider, IflowConfig) or (
            isinstance(self.provider, AcpConfig) and self.provider.preset is not None
        )

    @field_validator("environment")
    @classmethod
    def _not_ours(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name.startswith(("SUBLET_", "LD_")):
                raise ValueError(
                    f"{name} can't be passed on: SUBLET_* is set by the daemon, LD_* would reach its guard"
                )
        return names

    @field_validator("session")
    @classmethod
    def _resumes_where_it_can(cls, session: SessionConfig, info: ValidationInfo) -> SessionConfig:
        provider = info.data.get("provider")
        if session.resume and provider is not None and provider.type in RESUMELESS:
            raise ValueError(f"provider type '{provider.type}' can't resume a session: leave session.resume out")
        return session

    @field_validator("tools", "governance")
    @classmethod
    def _enforceable(cls, value: ValueT, info: ValidationInfo) -> ValueT:
        if provider := info.data.get("provider"):
            named = {provider.type, getattr(provider, "name", None), getattr(provider, "preset", None)}
            names = frozenset(name for name in named if isinstance(name, str))
            if isinstance(value, ToolsConfig):
                check_tools(provider.type, value)
            elif isinstance(value, dict):
                check_governance(provider.type, names, value)
        return value

    @field_validator("sandbox")
    @classmethod
    def _kept_from_programs(cls, sandbox: SandboxConfig, info: ValidationInfo) -> SandboxConfig:
        provider = info.data.get("provider")
        if not sandbox.allow_exec and provider is not None and not isinstance(provider, ModelConfig):
            raise ValueError(
                f"provider type '{provider.type}' can't be kept from starting programs: allow_exec is true"
            )
        return sandbox

    @field_validator("mcp_servers")
    @classmethod
    def _servers_of_a_model(
        cls, servers: dict[str, McpServerConfig], info: ValidationInfo
    ) -> dict[str, McpServerConfig]:
        provider, sandbox = info.data.get("provider"), info.data.get("sandbox")
        if servers and provider is not None and not isinstance(provider, ModelConfig):
            raise ValueError(f"provider type '{provider.type}' has no use for them")
        if sandbox is not None and not sandbox.allow_exec and any(server.command for server in servers.values()):
            raise ValueError("a server that is a command needs sandbox.allow_exec")
        return servers

    @model_validator(mode="after")
    def _network_where_needed(self) -> AgentConfig:
        if self._needs_network and self.sandbox.allow_network is False:
            name = getattr(self.provider, "name", None) or getattr(self.provider, "preset", None) or "iflow"
            raise ValueError(f"preset '{name}' needs the network: leave sandbox.allow_network out")
        return self


def check_governed(config: AgentConfig, narrowing: Narrowing) -> None:
    """Refuse a request that is narrowed, for an agent that does not ask before each tool.

    Raises:
        SubletError: ``POLICY_DENIED``.
    """
    if narrowing and config.provider.type not in GOVERNING | {"super"}:
        raise SubletError(
            LocalCode.POLICY_DENIED,
            f"agent {config.id} does not ask before each tool, so a request to it can't be narrowed to some of them",
            "Ask an agent of type acp, iflow or model, or lend read-only.",
        )


class AgentList(ConfigPart):
    """Several agents, of which the first is the one that is asked where none is named; or none at all."""

    agents: Annotated[tuple[AgentConfig, ...], Field(max_length=MAX_AGENTS)]

    @field_validator("agents")
    @classmethod
    def _distinct(cls, agents: tuple[AgentConfig, ...]) -> tuple[AgentConfig, ...]:
        ids = [agent.id for agent in agents]
        for agent_id in ids:
            if ids.count(agent_id) > 1:
                raise ValueError(f"two agents have the id '{agent_id}'")
        check_workers({agent.id: agent.provider for agent in agents})
        return agents


def load_agents(path: Path) -> list[AgentConfig]:
    """Return the agents of the file at ``path``; the first is the default.

    Raises:
        SubletError: ``INVALID_ARGUMENT``, naming the file, the JSON path of the first defect, and what is wrong there.
    """
    try:
        raw = read_plain(path, MAX_AGENT_FILE_BYTES)
    except OSError as error:
        raise _invalid(path, "", f"it can't be read: {error.strerror}") from error
    if len(raw) > MAX_AGENT_FILE_BYTES:
        raise _invalid(path, "", f"it is larger than {MAX_AGENT_FILE_BYTES} bytes")
    try:
        document = unique_json(raw)
    except ValueError as error:
        raise _invalid(path, "", f"it is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise _invalid(path, "", 'it is a JSON object: one agent, or {"agents": […]}')
    body = {key: value for key, value in document.items() if key != "$schema"}
    try:
        if "agents" in body:
            return list(read_strictly(AgentList, body).agents)
        only = read_strictly(AgentConfig, body)
        if only.provider.type == "super":
            raise _invalid(path, "provider.workers", 'its workers are agents of the same file: write {"agents": […]}')
        return [only]
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise _invalid(
            path, _json_path(first["loc"]), fault_words(first, AgentList if "agents" in body else AgentConfig)
        ) from None


def agent_json_schema() -> dict[str, JsonValue]:
    """Return the JSON Schema (2020-12) of ``agent.json``, made from the models."""
    either: TypeAdapter[AgentConfig | AgentList] = TypeAdapter(AgentConfig | AgentList)
    # Defaults that are tuples become the arrays they are in JSON.
    document = cast("dict[str, JsonValue]", json.loads(json.dumps(either.json_schema(by_alias=True))))
    definitions = cast("dict[str, dict[str, dict[str, JsonValue]]]", document["$defs"])
    for name in ("AgentConfig", "AgentList"):
        definitions[name]["properties"]["$schema"] = {"type": "string"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "agent.json",
        **document,
    }


def _json_path(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        if part in PROVIDER_TYPES and text.endswith("provider"):
            continue  # which of the providers was tried, not a key of the file
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _invalid(path: Path, where: str, reason: str) -> SubletError:
    at = f" at {clean_line(where, 200)}" if where else ""
    return SubletError(
        LocalCode.INVALID_ARGUMENT,
        f"{path}{at}: {clean_line(reason, 500)}",
        "See docs/schema/agent.schema.json for what agent.json may hold.",
    )
