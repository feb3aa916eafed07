"""The process of a Computer: MCP servers of this machine in an office, until it is told to stop (DESIGN 8).

It stands beside the daemon. Of an office of this machine it asks the daemon where that is served, each time anew.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import anyio

from sublet.daemon.net.addresses import is_loopback
from sublet.office_client.blobs import Landing
from sublet.office_client.computer import Computer
from sublet.office_client.link import Place
from sublet.office_client.servers import ServerCommand, ToolServer
from sublet.office_client.serving import Changes, Serving
from sublet.protocol.bounded_json import BadJson, parse_json
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.offices.names import Role
from sublet.protocol.offices.requests import MAX_NAME_CHARS
from sublet.protocol.offices.tool_names import bundle_id

TOKEN_VARIABLE: Final = "SUBLET_OFFICE_TOKEN"  # noqa: S105 - the name of a variable, not a secret
MAX_TOKEN_CHARS: Final = 64 << 10
"""Of all that is given as a token, its certificate included."""
MAX_SERVERS: Final = 16
_MAX_SECRET_CHARS: Final = 2_048


@dataclass(frozen=True, slots=True)
class GivenToken:
    """A token, with what ``sublet office token --json`` says beside it, if that was given.

    Args:
        secret: the token.
        name: for whom it is.
        office_id: for which office.
        url: where that is.
        certificate: by which the URL is known, in DER.
    """

    secret: str
    name: str = ""
    office_id: str = ""
    url: str = ""
    certificate: bytes | None = None


@dataclass(frozen=True, slots=True)
class ComputerReady:
    """A Computer that has joined its office."""

    office_id: str
    url: str
    name: str
    tools: list[str]
    pid: int


def read_token(text: str) -> GivenToken:
    """Return the token that ``text`` is: alone, or all that ``sublet office token --json`` prints.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: it is neither, or the token of an Agent.
    """
    text = text.strip()
    if not text.startswith("{"):
        if not text or len(text) > _MAX_SECRET_CHARS or not text.isprintable() or " " in text:
            raise _no_token("that is no token of an office")
        return GivenToken(text)
    try:
        told = parse_json(text, max_bytes=MAX_TOKEN_CHARS)
    except BadJson as error:
        raise _no_token(f"what was given as a token is no JSON: {error}") from None
    found = {name: told.get(name) if isinstance(told, dict) else None for name in ("token", "name", "office_id", "url")}
    if not all(isinstance(one, str) and one for one in found.values()):
        raise _no_token("what was given as a token lacks token, name, office_id or url")
    assert isinstance(told, dict)
    if told.get("role") != Role.COMPUTER:
        raise _no_token("this token is not that of a Computer")
    pem = told.get("certificate")
    try:
        certificate = ssl.PEM_cert_to_DER_cert(pem) if isinstance(pem, str) else None
    except ValueError:
        raise _no_token("the certificate beside the token is none") from None
    token, name, office_id, url = (str(one) for one in found.values())
    return GivenToken(token, name, office_id, url, certificate)


def place_of(office: str, token: GivenToken) -> Place | None:
    """Return where an office is that was named by URL, or by the id that stands beside its token; None for others.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: the URL is none, or would show the token to whoever listens.
    """
    if "://" in office:
        base, _, last = office.rstrip("/").rpartition("/")
        office_id = unquote(last)
        certificate = token.certificate if _same_server(base, token.url) else None
    elif office and office == token.office_id:
        base, office_id, certificate = token.url, office, token.certificate
    else:
        return None
    parts = urlsplit(base)
    try:
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    more = parts.username or parts.query or parts.fragment
    if parts.scheme not in ("http", "https") or not host or not office_id or more:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            "that is no URL of an office",
            "It is what `sublet office token --json` shows, a slash and the id: https://desk.example:8648/OFFICE_ID",
        )
    if parts.scheme == "http" and not is_loopback(host):
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            "the token would go over the network as it is",
            "Use https beyond this machine.",
        )
    if len(office_id) > MAX_NAME_CHARS:
        raise SubletError(LocalCode.INVALID_ARGUMENT, "the id of the office is too long", "It is a UUID as a rule.")
    return Place(base, office_id, certificate)


def server_commands(
    commands: Sequence[Sequence[str]], names: Sequence[str], environ: Mapping[str, str], cwd: Path
) -> list[ServerCommand]:
    """Return how MCP servers are started, each with an id of its own.

    Args:
        commands: programs with their arguments, which run as whoever calls.
        names: what the first ones of them are called; others have the names of their programs.
        environ: what they get, without the token.
        cwd: where they run.

    Raises:
        SubletError: ``INVALID_ARGUMENT``, ``NOT_FOUND`` for a program that is not there.
    """
    if not commands or not all(commands) or len(commands) > MAX_SERVERS or len(names) > len(commands):
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            "there is no MCP server to start, or a name without one",
            f"Write its command behind --, and up to {MAX_SERVERS} of them with --- between: -- uvx mcp-server-git",
        )
    env = {name: value for name, value in environ.items() if name != TOKEN_VARIABLE}
    made: list[ServerCommand] = []
    for number, argv in enumerate(commands):
        if shutil.which(argv[0], path=env.get("PATH")) is None:
            raise SubletError(
                LocalCode.NOT_FOUND, f"there is no program {argv[0]!r}, or it may not be run", "Write its whole path."
            )
        name = names[number] if number < len(names) else Path(argv[0]).stem
        bundle = taken = bundle_id(name, argv, {})
        again = 1
        while any(one.bundle_id == bundle for one in made):
            again += 1
            bundle = f"{taken}-{again}"
        made.append(ServerCommand(name, bundle, list(argv), env, cwd))
    return made


async def run_computer(
    name: str,
    commands: Sequence[ServerCommand],
    place: Callable[[], Awaitable[Place]],
    token: GivenToken,
    uploads: Path | None,
    ready: Callable[[ComputerReady], None],
) -> None:
    """Be a Computer until SIGTERM or SIGINT.

    Args:
        name: for whom the token is.
        commands: its MCP servers.
        place: says where its office is; asked again whenever it was cut off.
        token: lets it in.
        uploads: directory for what the Agent uploads; None takes nothing.
        ready: is called whenever it has joined.

    Raises:
        SubletError: a server does not start, or the office refuses for good.
    """
    if uploads is not None and not await asyncio.to_thread(uploads.is_dir):
        raise SubletError(LocalCode.NOT_FOUND, f"there is no directory {uploads}", "Make it first.")
    loop, stopping, changes = asyncio.get_running_loop(), anyio.Event(), Changes()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    servers = [ToolServer(one, changes.note) for one in commands]
    landing = Landing(uploads, time.monotonic)
    computer = Computer(name, servers, landing)

    def joined(where: Place) -> None:
        ready(ComputerReady(where.office_id, where.url, name, computer.tool_names(), os.getpid()))

    try:
        await Serving(computer, servers, place, token.secret, changes).run(joined, stopping)
    finally:
        landing.close()


def _same_server(one: str, other: str) -> bool:
    return urlsplit(one)[:2] == urlsplit(other)[:2]


def _no_token(why: str) -> SubletError:
    return SubletError(
        LocalCode.INVALID_ARGUMENT,
        why,
        "sublet office token OFFICE --role computer --name NAME --json prints one with all that belongs to it.",
    )
