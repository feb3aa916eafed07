"""What the daemon is told: options of ``sublet up``, then ``config.json``, then defaults (DESIGN 3)."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass, replace
from pathlib import Path

import structlog
from pydantic import ValidationError

from sublet.daemon.config.config_file import (
    CONFIG_FILE,
    LOG_LEVELS,
    MIN_WEB_PORT,
    MessagingConfig,
    WebConfig,
    bus_endpoint,
    read_config,
)
from sublet.daemon.config.paths import Home, resolve_home
from sublet.daemon.net.addresses import parse_host_port
from sublet.daemon.net.base_url import check_url
from sublet.protocol.errors import LocalCode, SubletError

DEFAULT_A2A = "127.0.0.1:8642"
DEFAULT_SFTP = "127.0.0.1:8622"
DEFAULT_OFFICES = "127.0.0.1:8648"
DEFAULT_WEB_PORT = 8640
WEB_HOST = "127.0.0.1"
WEB_OFF = "off"
DEFAULT_BUS_PORT = 7447
EVERYWHERE = "0.0.0.0"  # noqa: S104 - only where a person asks for it

log = structlog.get_logger(__name__)


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
    """Where paired daemons join the message bus, which has TLS everywhere."""

    listen: Listen


class DaemonConfig:
    """The daemon's configuration, checked and complete. Reads ``config.json`` of ``home``.

    Args:
        agent_file: path of ``agent.json``; every argument left out comes from the file or is a default.
        a2a: ``HOST:PORT``.
        sftp: ``HOST:PORT``; by default on the host of ``a2a``.
        web: port of the web page, or ``off``.
        zenoh: endpoint of the message bus, such as ``tls/127.0.0.1:7447``; by default where A2A is.
        lan: listen for other machines where nothing else was chosen.
        public_url: base URL at which peers reach the A2A port.
        unsandboxed: run agents without the sandbox.
        log_level: one of ``LOG_LEVELS``.
        relay: the relay that carries rooms, ``tls/HOST:PORT``.
        relay_ca: certificate file by which it is known; by default the system's authorities.
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
        relay: str | None = None,
        relay_ca: str | None = None,
        home: Home | None = None,
    ) -> None:
        self.home = home or resolve_home()
        config_dir = Path(self.home.config_dir)
        self.file = file = read_config(config_dir / CONFIG_FILE)
        told = {"agent_file": agent_file, "a2a": a2a, "sftp": sftp, "web": web, "zenoh": zenoh, "lan": lan}
        told |= {"public_url": public_url, "unsandboxed": unsandboxed, "log_level": log_level}
        told |= {"relay": relay, "relay_ca": relay_ca}
        self.options = frozenset(name for name, value in told.items() if value)
        """Which of these were given."""
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
        self.messaging = _with_relay(file.messaging, relay, relay_ca, config_dir)
        self.offices = _listen("offices.listen", file.offices.listen, DEFAULT_OFFICES)
        self.office_protocol = file.offices.protocol_version
        self.retention = file.retention.chosen()
        self.unsandboxed = unsandboxed or file.unsandboxed
        self.log_level = log_level or file.log_level or "info"
        if self.log_level not in LOG_LEVELS:
            raise _invalid("log_level", f"it is none of {', '.join(LOG_LEVELS)}")


def _with_relay(file: MessagingConfig, relay: str | None, authority: str | None, config_dir: Path) -> MessagingConfig:
    """Return what the file says of messaging, with the relay of the options and with a path that is whole."""
    known_by = Path(authority).absolute() if authority else _below(config_dir, file.relay_authority)
    if known_by is not None and not known_by.is_file():
        raise _invalid("relay_ca", f"{known_by} is no file")
    changed = {"relays": [relay] if relay else file.relays, "relay_authority": str(known_by) if known_by else None}
    try:
        return MessagingConfig(**(file.model_dump() | changed))
    except ValidationError:
        raise _invalid("relay", "it is not tls/HOST:PORT") from None


def _bus(wanted: str | None, host: str) -> Bus:
    """Return where the bus is: as somebody wants it, or where A2A is, since whoever calls that has to reach it."""
    if wanted is None:
        return Bus(Listen(host, DEFAULT_BUS_PORT, chosen=False))
    try:
        host, port, _ = bus_endpoint(wanted)
    except ValueError as error:
        raise _invalid("zenoh", str(error)) from None
    return Bus(Listen(host, port, chosen=True))


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
