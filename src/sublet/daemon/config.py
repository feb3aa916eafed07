"""What the daemon is told: options of ``sublet up``, then ``config.json``, then defaults (DESIGN 3)."""

from __future__ import annotations

import errno
import re
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sublet.daemon.net.network import is_loopback, parse_host_port
from sublet.daemon.paths import Home, resolve_home
from sublet.daemon.peering.pair_link import check_url
from sublet.daemon.storage.pruning import Retention
from sublet.disk.plain_file import read_plain
from sublet.policy.guardrail.options import MAX_RETRIES, OnFailure
from sublet.protocol.bounds import MAX_TTL_SECONDS
from sublet.protocol.chain import DEFAULT_MAX_DEPTH, HIGHEST_MAX_DEPTH
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.faults import fault_words
from sublet.protocol.unique_json import unique_json

CONFIG_FILE = "config.json"
MAX_CONFIG_BYTES = 1 << 20
DAY_SECONDS = 86_400
DEFAULT_A2A = "127.0.0.1:8642"
DEFAULT_SFTP = "127.0.0.1:8622"
DEFAULT_WEB_PORT = 8640
WEB_HOST = "127.0.0.1"
WEB_OFF = "off"
MIN_WEB_PORT = 1024
DEFAULT_BUS_PORT = 7447
EVERYWHERE = "0.0.0.0"  # noqa: S104 - only where a person asks for it

log = structlog.get_logger(__name__)

_ENDPOINT = re.compile(r"(?P<protocol>tcp|tls)/(?P<address>[^/?#;]+)\Z")

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
    extensions: Annotated[list[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")]], Field(max_length=64)] = Field(
        default=[],
        description="Extensions of others that are installed beside Sublet, named by their entry points",
    )
    relays: Annotated[list[Short], Field(max_length=8)] = Field(
        default=[], description="Zenoh routers that carry messages between daemons that do not reach each other"
    )
    relay_authority: Short | None = Field(
        default=None, description="Certificate file by which relays are known, where no public authority knows them"
    )

    @field_validator("relays")
    @classmethod
    def _no_plaintext_abroad(cls, relays: list[str]) -> list[str]:
        for relay in relays:
            _endpoint(relay)
        return relays


class ConfigFile(BaseModel):
    """``config.json``: every option of ``sublet up`` under its name, and two paths more."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, strict=True)

    a2a: Short | None = Field(default=None, description="HOST:PORT where peers call; port 0 is any free one")
    sftp: Short | None = Field(default=None, description="HOST:PORT where workspaces are served")
    zenoh: Short | None = Field(
        default=None, description="Where paired daemons join the message bus: tcp/HOST:PORT on this machine, else tls/"
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


@dataclass(frozen=True, slots=True)
class Listen:
    """Where to listen. ``chosen`` tells whether somebody asked for it or it is only the default."""

    host: str
    port: int
    chosen: bool

    def free_port(self, last: int | None = None) -> int:
        """Return a port to bind: the wanted one, or, where any will do or the default is taken, the last or 0 for any.

        Args:
            last: what was listened on before, where peers still look for us.

        Raises:
            SubletError: ``UNAVAILABLE`` where a chosen port is taken or the address can't be bound.
        """
        if self.port == 0 and last is not None and self._taken(last) is None:
            return last
        error = self._taken(self.port)
        if error is not None:
            if error.errno == errno.EADDRINUSE and not self.chosen:
                if last is not None and self._taken(last) is None:
                    return last
                log.warning("the default port is taken, so any free one is used", port=self.port)
                return 0
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"{self.host}:{self.port} can't be listened on: {error.strerror or error}",
                "Choose another address; port 0 is any free one.",
            ) from None
        return self.port

    def _taken(self, port: int) -> OSError | None:
        """Return why ``port`` can't be listened on, or None where it can."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((self.host, port))
                # Only listening tells: two sockets that merely bind may share a port.
                probe.listen(1)
        except OSError as error:
            return error
        return None


@dataclass(frozen=True, slots=True)
class Bus:
    """Where paired daemons join the message bus; with TLS wherever others than this machine reach it."""

    listen: Listen
    tls: bool


class DaemonConfig:
    """The daemon's configuration, checked and complete. Reads ``config.json`` of ``home``.

    Args:
        agent_file: path of ``agent.json``; every argument left out comes from the file or is a default.
        a2a: ``HOST:PORT``.
        sftp: ``HOST:PORT``; by default on the host of ``a2a``.
        web: port of the web page, or ``off``.
        zenoh: endpoint of the message bus, such as ``tcp/127.0.0.1:7447``; by default where A2A is.
        lan: listen for other machines where nothing else was chosen.
        public_url: base URL at which peers reach the A2A port.
        unsandboxed: run agents without the sandbox.
        log_level: one of ``LOG_LEVELS``.
        home: the directories; those of the environment by default.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for anything malformed, ``UNAVAILABLE`` where a file can't be read.
    """

    def __init__(
        self,
        *,
        agent_file: str | None = None,
        a2a: str | None = None,
        sftp: str | None = None,
        web: str | None = None,
        zenoh: str | None = None,
        lan: bool = False,
        public_url: str | None = None,
        unsandboxed: bool = False,
        log_level: str | None = None,
        home: Home | None = None,
    ) -> None:
        self.home = home or resolve_home()
        config_dir = Path(self.home.config_dir)
        file = read_config(config_dir / CONFIG_FILE)
        wanted = a2a or file.a2a
        self.a2a = _listen("a2a", wanted, DEFAULT_A2A)
        if lan and wanted is None:
            self.a2a = replace(self.a2a, host=EVERYWHERE)
        self.sftp = _listen("sftp", sftp or file.sftp, DEFAULT_SFTP)
        if not self.sftp.chosen and (self.a2a.chosen or lan):
            # Who opens A2A to other machines opens the files' port with it: without it neither side could reach them.
            self.sftp = replace(self.sftp, host=self.a2a.host)
        self.web = _web(web, file.web)
        self.bus = _bus(zenoh or file.zenoh, self.a2a.host)
        url = public_url or file.public_url
        self.public_url = check_url(url) if url else None
        self.agent_file = (
            Path(agent_file).absolute() if agent_file else _file(config_dir, file.agent_file, "agent.json")
        )
        self.policy_file = _file(config_dir, file.policy_file, "policy.json")
        self.mount_root = _below(config_dir, file.mount_root) or Path(self.home.default_mount_root)
        self.capability_dirs = tuple(config_dir / Path(one).expanduser() for one in file.capability_dirs)
        self.watch_files = file.watch_files
        self.hooks = file.hooks
        self.supervisor = file.supervisor
        self.messaging = file.messaging
        self.retention = file.retention.chosen()
        self.unsandboxed = unsandboxed or file.unsandboxed
        self.log_level = log_level or file.log_level or "info"
        if self.log_level not in LOG_LEVELS:
            raise _invalid("log_level", f"it is none of {', '.join(LOG_LEVELS)}")


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
        return ConfigFile.model_validate(unique_json(raw))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"{path}: {where}: {fault_words(first)}", "Mend the file or move it away."
        ) from None
    except ValueError as error:
        raise SubletError(LocalCode.INVALID_ARGUMENT, f"{path}: {error}", "It must be a JSON object.") from None


def _bus(wanted: str | None, host: str) -> Bus:
    """Return where the bus is: as somebody wants it, or where A2A is, since whoever calls that has to reach it."""
    if wanted is None:
        return Bus(Listen(host, DEFAULT_BUS_PORT, chosen=False), tls=not is_loopback(host))
    try:
        host, port, tls = _endpoint(wanted)
    except ValueError as error:
        raise _invalid("zenoh", str(error)) from None
    return Bus(Listen(host, port, chosen=True), tls=tls)


def _endpoint(text: str) -> tuple[str, int, bool]:
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


def _listen(name: str, wanted: str | None, default: str) -> Listen:
    try:
        host, port = parse_host_port(wanted or default)
    except ValueError as error:
        raise _invalid(name, str(error)) from None
    return Listen(host, port, chosen=wanted is not None)


def _web(wanted: str | None, file: WebConfig) -> Listen | None:
    """Return where the web page listens; None where it is switched off."""
    if wanted == WEB_OFF or (wanted is None and not file.enabled):
        return None
    try:
        chosen = file if wanted is None else WebConfig(port=int(wanted) if wanted.isdecimal() else -1)
    except ValueError:
        raise _invalid("web", f"it is neither off, nor 0, nor a port from {MIN_WEB_PORT} to 65535") from None
    return Listen(WEB_HOST, DEFAULT_WEB_PORT if chosen.port is None else chosen.port, chosen=chosen.port is not None)


def _file(config_dir: Path, named: str | None, default: str) -> Path | None:
    """Return the file that is named, or the one of the default name if it exists."""
    chosen = _below(config_dir, named)
    if chosen is None and (config_dir / default).is_file():
        return config_dir / default
    return chosen


def _below(config_dir: Path, named: str | None) -> Path | None:
    return None if named is None else config_dir / Path(named).expanduser()


def _invalid(name: str, why: str) -> SubletError:
    return SubletError(LocalCode.INVALID_ARGUMENT, f"the option {name} can't be used: {why}", "See `sublet up --help`.")
