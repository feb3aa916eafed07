"""``config.json``: what a person may write there, and how it is read (DESIGN 3, SuperAgent 7.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sublet.daemon.config.retention import Retention
from sublet.daemon.net.addresses import is_loopback, parse_host_port
from sublet.disk.plain_file import read_plain
from sublet.policy.guardrail.options import MAX_RETRIES, OnFailure
from sublet.protocol.bounds import MAX_TTL_SECONDS
from sublet.protocol.chain import DEFAULT_MAX_DEPTH, HIGHEST_MAX_DEPTH
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.faults import fault_words
from sublet.protocol.offices.names import DEFAULT_PROTOCOL_VERSION
from sublet.protocol.offices.version import parse_version
from sublet.protocol.patterns import Pattern
from sublet.protocol.strict_model import read_strictly
from sublet.protocol.unique_json import unique_json

CONFIG_FILE = "config.json"
MAX_CONFIG_BYTES = 1 << 20
DAY_SECONDS = 86_400
MIN_WEB_PORT = 1024

_ENDPOINT = Pattern(r"(?P<protocol>tcp|tls)/(?P<address>[^/?#;]+)\Z")

LogLevel = Literal["debug", "info", "warning", "error"]
LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)

Short = Annotated[str, Field(min_length=1, max_length=1024)]


Days = Annotated[int, Field(ge=0, le=36_500)]


class RetentionConfig(BaseModel):
    """``retention`` of ``config.json``: what the daemon forgets by itself; ``null`` keeps without that bound."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, strict=True)

    max_age_days: Days | None = Field(default=30, description="What ended longer ago is forgotten")
    max_bytes: Annotated[int, Field(ge=0)] | None = Field(
        default=4 << 30, description="The oldest are forgotten until the rest takes no more"
    )
    pending_days: Days = Field(default=90, description="How long a result waits to be reviewed")

    def chosen(self) -> Retention:
        """Return it in the units that pruning counts in."""
        age = None if self.max_age_days is None else self.max_age_days * DAY_SECONDS
        return Retention(age, self.max_bytes, self.pending_days * DAY_SECONDS)


class HooksConfig(BaseModel):
    """``hooks`` of ``config.json``: what the daemon does when a delegation is over. Nothing by itself."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, strict=True)

    on_end: Annotated[list[Annotated[str, Field(min_length=1, max_length=4096)]], Field(max_length=64)] = Field(
        default=[], description="Program and arguments; it gets the delegation as JSON on its standard input"
    )
    notify: bool = Field(default=False, description="Show a desktop notice through notify-send where it is there")


class WebConfig(BaseModel):
    """``web`` of ``config.json``: the local web page, which listens on 127.0.0.1 alone."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, strict=True)

    enabled: bool = True
    port: Annotated[int, Field(ge=0, le=65_535)] | None = Field(
        default=None, description="Where it listens; 0 is any free port, by default 8640 or, where that is taken, any"
    )

    @field_validator("port")
    @classmethod
    def _no_port_that_browsers_leave_out(cls, port: int | None) -> int | None:
        if port is not None and 0 < port < MIN_WEB_PORT:
            raise ValueError(f"it must be 0 or at least {MIN_WEB_PORT}")
        return port


class ClassifierConfig(BaseModel):
    """``supervisor.classifier`` of ``config.json``: a chat model that proposes routes where the rules are unsure."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, strict=True)

    endpoint: Annotated[str, Field(max_length=1024, pattern=r"^https?://[^\s]+$")] = Field(
        description="Base URL of an OpenAI-compatible endpoint, to which /chat/completions is added"
    )
    model: Short = Field(description="Name of the model")
    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")] | None = Field(
        default=None, description="Environment variable of the daemon that holds the key"
    )
    timeout_seconds: Annotated[float, Field(gt=0, le=120)] = 20.0

    @field_validator("endpoint")
    @classmethod
    def _no_plaintext_abroad(cls, endpoint: str) -> str:
        host = urlsplit(endpoint).hostname or ""
        if endpoint.startswith("http://") and not is_loopback(host):
            raise ValueError("beyond this machine it needs https")
        return endpoint


class SupervisorConfig(BaseModel):
    """``supervisor`` of ``config.json``: how requests are routed, and how far calls go (SuperAgent 7.1)."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, strict=True)

    default_route: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$|^ask_human$|^reject$")] | None = Field(
        default=None, description="Agent for what fits none, or ask_human, or reject; by default the first agent"
    )
    default_provider: Annotated[str, Field(max_length=64, pattern=r"^[a-z0-9][a-z0-9_-]*$")] | None = Field(
        default=None, description="Provider whose agents come first where nothing else tells two apart"
    )
    min_confidence: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.4, description="A person is asked where the router is less sure"
    )
    remember: bool = Field(default=True, description="A session goes on with the agent that it had before")
    hub: bool = Field(default=True, description="/hub MODULE at the beginning of a request goes straight to a module")
    max_depth: Annotated[int, Field(ge=0, le=HIGHEST_MAX_DEPTH)] = Field(
        default=DEFAULT_MAX_DEPTH, description="Callers that a call may have behind it"
    )
    lease_seconds: Annotated[float, Field(gt=0, le=MAX_TTL_SECONDS)] = Field(
        default=600.0, description="How long one call of an agent may take"
    )
    question_seconds: Annotated[float, Field(gt=0, le=MAX_TTL_SECONDS)] = Field(
        default=86_400.0, description="How long a question waits for a person's answer"
    )
    guardrail_retries: Annotated[int, Field(ge=0, le=MAX_RETRIES)] = Field(
        default=MAX_RETRIES, description="How often an agent is asked again whose answer does not satisfy its schema"
    )
    guardrail_on_failure: OnFailure = Field(
        default="reject", description="What becomes of a request without such an answer: ask_human or reject"
    )
    classifier: ClassifierConfig | None = None


class MessagingConfig(BaseModel):
    """``messaging`` of ``config.json``: rooms between daemons."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    undeliverable_seconds: Annotated[float, Field(gt=0, le=MAX_TTL_SECONDS * 366)] = Field(
        default=7.0 * DAY_SECONDS,
        description="How long the daemon of a recipient may be silent before a message to it counts as undeliverable",
    )
    max_hops: Annotated[int, Field(ge=0, le=1_000)] = Field(
        default=32, description="Messages with which agents may answer each other in a row, without a person"
    )
    agent_messages_per_minute: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=60, description="Messages of one agent to another one in a minute"
    )
    megabytes_of_daemon: Annotated[int, Field(ge=1, le=1 << 20)] = Field(
        default=4_096,
        description="MiB that are kept of what the entities of one other daemon write into rooms; more is refused",
    )
    encryption: Literal["members", "transport_only"] = Field(
        default="members",
        description="Of new rooms, those of delegations too: members (what is said is hidden from all but members) "
        "or transport_only (from who taps a link)",
    )
    extensions: Annotated[list[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")]], Field(max_length=64)] = Field(
        default=[],
        description="Extensions of others that are installed beside Sublet, named by their entry points",
    )
    relays: Annotated[list[Short], Field(max_length=1)] = Field(
        default=[],
        description="The relay that carries rooms between daemons that do not reach each other: tls/HOST:PORT",
    )
    relay_authority: Short | None = Field(
        default=None, description="Certificate file by which the relay is known, where no public authority knows it"
    )

    @field_validator("relays")
    @classmethod
    def _no_plaintext_abroad(cls, relays: list[str]) -> list[str]:
        for relay in relays:
            _, port, has_tls = bus_endpoint(relay)
            if not has_tls or not port:
                raise ValueError("a relay is tls/HOST:PORT")
        return relays


class OfficesConfig(BaseModel):
    """``offices`` of ``config.json``: where A2C-SMCP clients join. Nothing listens before there is an office."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, strict=True)

    listen: Short | None = Field(
        default=None, description="HOST:PORT; 127.0.0.1:8648 by default, or any free port where that is taken"
    )
    protocol_version: Annotated[str, Field(max_length=16)] = Field(
        default=DEFAULT_PROTOCOL_VERSION, description="Version of A2C-SMCP that clients have to be compatible with"
    )

    @field_validator("protocol_version")
    @classmethod
    def _a_version(cls, version: str) -> str:
        return str(parse_version(version))


class ConfigFile(BaseModel):
    """``config.json``: every option of ``sublet up`` under its name, and two paths more."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, strict=True)

    a2a: Short | None = Field(default=None, description="HOST:PORT where peers call; port 0 is any free one")
    sftp: Short | None = Field(default=None, description="HOST:PORT where workspaces are served")
    zenoh: Short | None = Field(
        default=None, description="Where paired daemons join the message bus: tls/HOST:PORT; tcp/ is read as tls/"
    )
    public_url: Short | None = Field(default=None, description="How peers reach the A2A port, if not by its address")
    agent_file: Short | None = Field(default=None, description="agent.json, beside this file by default")
    policy_file: Short | None = Field(default=None, description="policy.json, beside this file by default")
    capability_dirs: Annotated[list[Short], Field(max_length=16)] = Field(
        default=[], description="Where capabilities lie, besides capabilities/ beside this file"
    )
    mount_root: Short | None = Field(default=None, description="Where lent directories are mounted")
    watch_files: bool = Field(
        default=True, description="Put agent.json, policy and modules in force as soon as they change"
    )
    unsandboxed: bool = Field(default=False, description="Run agents without bubblewrap")
    log_level: LogLevel | None = None
    retention: RetentionConfig = RetentionConfig()
    hooks: HooksConfig = HooksConfig()
    web: WebConfig = WebConfig()
    supervisor: SupervisorConfig = SupervisorConfig()
    messaging: MessagingConfig = MessagingConfig()
    offices: OfficesConfig = OfficesConfig()


def read_config(path: Path) -> ConfigFile:
    """Return what ``config.json`` says; nothing where there is none.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` naming the field, ``UNAVAILABLE`` where it can't be read.
    """
    try:
        raw = read_plain(path, MAX_CONFIG_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return ConfigFile()
    except OSError as error:
        raise SubletError(
            LocalCode.UNAVAILABLE, f"{path} can't be read: {error.strerror}", "Mend it or move it away."
        ) from None
    try:
        if len(raw) > MAX_CONFIG_BYTES:
            raise ValueError(f"it is larger than {MAX_CONFIG_BYTES} bytes")
        return read_strictly(ConfigFile, unique_json(raw))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"{path}: {where}: {fault_words(first, ConfigFile)}",
            "Mend the file or move it away.",
        ) from None
    except ValueError as error:
        raise SubletError(LocalCode.INVALID_ARGUMENT, f"{path}: {error}", "It must be a JSON object.") from None


def bus_endpoint(text: str) -> tuple[str, int, bool]:
    """Return host and port of an endpoint, and whether it has TLS.

    Raises:
        ValueError: another form, or plain tcp beyond this machine.
    """
    match = _ENDPOINT.match(text)
    if match is None:
        raise ValueError("it is not tcp/HOST:PORT or tls/HOST:PORT")
    host, port = parse_host_port(match["address"])
    if match["protocol"] == "tcp" and not is_loopback(host):
        raise ValueError("beyond this machine it needs tls")
    return host, port, match["protocol"] == "tls"
