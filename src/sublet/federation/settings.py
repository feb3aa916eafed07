"""``federation.toml``: the specification's ``[agent_federation]``, and how it is read."""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from sublet.disk.plain_file import read_plain
from sublet.protocol.bounds import MAX_TTL_SECONDS
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.faults import fault_words
from sublet.protocol.federation.addresses import DEFAULT_NAMESPACE, namespace, node_name
from sublet.protocol.federation.events import DEFAULT_TASK_SECONDS
from sublet.protocol.ids import FINGERPRINT

FEDERATION_FILE: Final = "federation.toml"
MAX_FILE_BYTES: Final = 1 << 20
MAX_PEERS: Final = 1_000
DEFAULT_HTTP_PORT: Final = 7676
TABLE: Final = "agent_federation"


class _Part(BaseModel):
    model_config = ConfigDict(defer_build=True, frozen=True, strict=True, extra="forbid")


class RoomSettings(_Part):
    """``[agent_federation.room]``."""

    namespace: str = DEFAULT_NAMESPACE
    federate: bool = True

    @field_validator("namespace")
    @classmethod
    def _is_one(cls, text: str) -> str:
        return _checked(namespace, text)


class HttpSettings(_Part):
    """``[agent_federation.http]``, our addition: whether nodes that are not paired are reached over HTTP."""

    enabled: bool = False
    listen: str = f"127.0.0.1:{DEFAULT_HTTP_PORT}"
    tls: bool = True
    allow_plaintext: bool = False

    @field_validator("listen")
    @classmethod
    def _is_place(cls, text: str) -> str:
        host, _ = split_listen(text)
        if not host:
            raise ValueError("it is no address and port, such as 127.0.0.1:7676 or [::1]:7676")
        return text

    @model_validator(mode="after")
    def _tells_nobody(self) -> HttpSettings:
        if not self.tls and not self.allow_plaintext and not _is_loopback(split_listen(self.listen)[0]):
            raise ValueError("without tls it listens on a loopback address alone, or allow_plaintext has to be true")
        return self


class PeerSettings(_Part):
    """One of ``[[agent_federation.peers]]``. ``fingerprint`` and ``allow_plaintext`` are our additions."""

    node_id: str
    url: Annotated[str, Field(max_length=2_000)] | None = None
    trusted: bool = True
    fingerprint: str | None = None
    allow_plaintext: bool = False

    @field_validator("node_id")
    @classmethod
    def _is_name(cls, text: str) -> str:
        return _checked(node_name, text)

    @field_validator("fingerprint")
    @classmethod
    def _is_fingerprint(cls, text: str | None) -> str | None:
        if text is not None and not FINGERPRINT.fullmatch(text):
            raise ValueError("it is no fingerprint, such as SHA256: and 43 characters")
        return text

    @field_validator("url")
    @classmethod
    def _is_url(cls, text: str | None) -> str | None:
        if text is not None:
            parts = urlsplit(text)
            port = parts.port  # raises ValueError where it is none
            plain = parts.path in ("", "/") and not (parts.query or parts.fragment or parts.username or parts.password)
            if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or not text.isascii():
                raise ValueError("it is no http or https URL of a host")
            if not plain:
                raise ValueError("it is more than scheme, host and port")
        return text

    @property
    def why_no_http(self) -> str:
        """Why the node can't be called at its ``url``, whatever is switched on; empty where it can."""
        if self.url is None:
            return "it has no url"
        parts = urlsplit(self.url)
        reasons = []
        if parts.scheme == "http" and not self.allow_plaintext and not _is_loopback(parts.hostname or ""):
            reasons.append("plain http leaves this machine only with allow_plaintext: use https")
        if self.fingerprint is None:
            reasons.append("nobody knows its key: write down its fingerprint, which `sublet nodes --json` shows there")
        return "; ".join(reasons)


class Settings(_Part):
    """``[agent_federation]``. ``node_id`` is our addition: the name of this node."""

    enabled: bool = True
    node_id: str | None = None
    heartbeat_interval_secs: Annotated[int, Field(ge=1, le=3_600)] = 30
    agent_timeout_secs: Annotated[int, Field(ge=2, le=86_400)] = 120
    default_task_timeout_secs: Annotated[int, Field(ge=1, le=MAX_TTL_SECONDS)] = DEFAULT_TASK_SECONDS
    room: RoomSettings = RoomSettings()
    http: HttpSettings = HttpSettings()
    peers: Annotated[list[PeerSettings], Field(max_length=MAX_PEERS)] = []

    @field_validator("node_id")
    @classmethod
    def _is_name(cls, text: str | None) -> str | None:
        return None if text is None else _checked(node_name, text)

    @model_validator(mode="after")
    def _beats_before_it_ends(self) -> Settings:
        if self.agent_timeout_secs <= self.heartbeat_interval_secs:
            raise ValueError("agent_timeout_secs has to be more than heartbeat_interval_secs")
        names = [one.node_id for one in self.peers]
        if len(set(names)) != len(names):
            raise ValueError("peers: a node_id is there twice")
        keys = [one.fingerprint for one in self.peers if one.fingerprint is not None]
        if len(set(keys)) != len(keys):
            raise ValueError("peers: a fingerprint is there twice")
        return self

    @property
    def on(self) -> bool:
        """Whether anything is told to other nodes, or taken from them."""
        return self.enabled and self.room.federate

    def trusts(self, name: str, fingerprint: str) -> bool:
        """Tell whether tasks are exchanged with a node; presence is in any case.

        What stands beside a fingerprint holds for that key, whatever it calls itself meanwhile.
        """
        said = [
            one.trusted
            for one in self.peers
            if (one.fingerprint == fingerprint if one.fingerprint is not None else one.node_id == name)
        ]
        return all(said)

    def misnamed(self, name: str, fingerprint: str) -> bool:
        """Tell whether the file gives a name to another key than the one that has it."""
        return any(one.node_id == name and one.fingerprint not in (None, fingerprint) for one in self.peers)


def split_listen(text: str) -> tuple[str, int]:
    """Return address and port of ``ADDRESS:PORT``, an IPv6 address in brackets; no address where it is none."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "", 0
    known = colon and port.isascii() and port.isdigit() and len(port) <= len("65535") and int(port) < 1 << 16
    return (str(address), int(port)) if known and (":" in text.rpartition(":")[0]) == ("[" in text) else ("", 0)


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _File(_Part):
    agent_federation: Settings = Settings()


def read_settings(path: Path) -> Settings:
    """Return what a file says; the defaults where there is none. Blocks on the disk.

    Raises:
        SubletError: ``INVALID_ARGUMENT``, naming file, line and key; ``UNAVAILABLE`` where it can't be read.
    """
    try:
        raw = read_plain(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise SubletError(
            LocalCode.UNAVAILABLE, f"{path} can't be read: {error.strerror or error}", "See its owner and its mode."
        ) from None
    if len(raw) > MAX_FILE_BYTES:
        raise _wrong(path, "1", "", f"it is larger than {MAX_FILE_BYTES} bytes")
    try:
        text = raw.decode()
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # not TOML's own error alone: a number of thousands of digits
        raise _wrong(path, "", "", f"it is no TOML: {error}") from None
    try:
        return _File.model_validate(document).agent_federation
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place: Sequence[str | int] = first["loc"]
        key = ".".join(str(part) for part in place)
        raise _wrong(path, str(_line_of(text, place)), key, fault_words(first, _File)) from None


def _checked(parse: Any, text: str) -> str:
    try:
        return str(parse(text))
    except SubletError as error:
        raise ValueError(f"{error.message}. {error.hint}") from None


def _wrong(path: Path, line: str, key: str, why: str) -> SubletError:
    where = f"{path}:{line}" if line else str(path)
    named = f"{key}: " if key else ""
    return SubletError(
        LocalCode.INVALID_ARGUMENT, f"{where}: {named}{why}", "docs/federation.md says what may stand there."
    )


def _line_of(text: str, place: Sequence[str | int]) -> int:
    """Return the line on which a key stands, or the table in which it should: what a person looks for first."""
    tables = [part for part in place if isinstance(part, str)]
    number = next((part for part in place if isinstance(part, int)), 0)
    found, seen, inside = 1, -1, ""
    best = 0
    for at, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if bare.startswith("["):
            inside = bare.partition("]")[0].strip("[] ").replace(" ", "")
            seen += bare.startswith("[[") and inside == ".".join(tables[:2])
            depth = len(inside.split(".")) if ".".join(tables).startswith(inside) else 0
            if depth >= best and not (bare.startswith("[[") and seen != number):
                found, best = at, depth
            continue
        key = bare.partition("=")[0].strip().strip("\"'")
        in_row = inside == ".".join(tables[:-1]) and (seen == number or number == 0)
        if tables and key == tables[-1] and in_row:
            return at
    return found
