"""``sublet relay``: run a relay, which carries rooms between daemons that do not reach each other."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from sublet.cli.help import Defaulting, Sectioned, group, verbatim
from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import leave
from sublet.cli.rendering.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError

DEFAULT_LISTEN = "tls/127.0.0.1:7448"
RELAY_EPILOG = verbatim(
    (
        "Examples",
        """sublet relay init --domain relay.example --dir /var/lib/sublet-relay
sublet relay --dir /var/lib/sublet-relay --listen tls/0.0.0.0:7448
sublet up --detach --relay tls/relay.example:7448 --relay-ca authority.pem
sublet register alice""",
    ),
)
DirOption = Annotated[Path, typer.Option("--dir", metavar="DIR", help="The relay's directory.", show_default=False)]

relay = group(
    "relay",
    "Run a relay: it carries rooms between daemons that do not reach each other.\n\n"
    "`sublet relay --dir DIR` is `sublet relay run`.",
    epilog=RELAY_EPILOG,
    cls=Defaulting,
)


@relay.command(cls=Sectioned, name="run")
def run(
    directory: DirOption,
    listen: Annotated[
        str, typer.Option(metavar="tls/HOST:PORT", help="Where daemons call; port 0 is any free one.")
    ] = DEFAULT_LISTEN,
    registration: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where they register, and /healthz is. [default: the port after that of --listen]",
            show_default=False,
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run the relay of a directory until it is stopped."""
    screen = Screen(as_json=as_json)

    async def body() -> None:
        from sublet.app.relay import RelayPlaces, RelayReady, run_relay
        from sublet.daemon.logs.logging import configure_logging

        configure_logging("info")
        host, port = _address("--listen", listen.removeprefix("tls/"), is_tls=listen.startswith("tls/"))
        desk = None if registration is None else _address("--registration", registration)

        def ready(relay: RelayReady) -> None:
            if as_json:
                screen.emit(asdict(relay))
                return
            screen.show(f"Relay of {relay.domain}: {relay.listen}, registration at {relay.registration}")
            screen.note(f"Daemons: sublet up --relay {relay.listen} --relay-ca {relay.authority}")

        await run_relay(directory, RelayPlaces(host, port, desk), ready)

    leave(screen, body)


@relay.command(cls=Sectioned, name="init")
def init(
    domain: Annotated[
        str, typer.Option(metavar="DOMAIN", help="Of the names: @alice:relay.example.", show_default=False)
    ],
    directory: DirOption,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="A further name or IP address of it; repeatable.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a relay: its directory, certificates and settings."""
    screen = Screen(as_json=as_json)

    async def body() -> Path:
        from pydantic import ValidationError

        from sublet.app.relay import init_relay
        from sublet.messaging.relay.settings import RelaySettings

        try:
            settings = RelaySettings(domain=domain, hosts=host or [])
        except ValidationError as error:
            where = str(error.errors()[0]["loc"][0])
            raise SubletError(
                LocalCode.INVALID_ARGUMENT, f"that is no {where.rstrip('s')} of a relay", "Such as relay.example."
            ) from None
        return await asyncio.to_thread(init_relay, directory, settings)

    authority = leave(screen, body)
    if as_json:
        screen.emit({"domain": domain, "dir": str(directory), "authority": str(authority)})
        return
    screen.show(f"Made the relay of {domain} in {directory}.")
    screen.note(f"Give daemons {authority}, and run: sublet relay --dir {directory}")


@relay.command(cls=Sectioned, name="names")
def names(directory: DirOption, as_json: JsonFlag = False) -> None:
    """List the names of a relay, and the daemons that have them."""
    screen = Screen(as_json=as_json)

    async def body() -> list[dict[str, str | bool | int]]:
        from sublet.app.relay import names_of

        return await asyncio.to_thread(names_of, directory)

    found = leave(screen, body)
    if as_json:
        screen.emit(found)
        return
    table = Table("Name", "Node", "State", box=None)
    for one in found:
        table.add_row(str(one["name"]), str(one["node_id"]), "revoked" if one["revoked"] else "registered")
    screen.show(table if found else "Nobody has a name here yet.")


@relay.command(cls=Sectioned, name="revoke")
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of an account.", show_default=False)],
    directory: DirOption,
    as_json: JsonFlag = False,
) -> None:
    """Take a name away for good.

    A relay that runs cuts its daemon at once. The name stays taken.
    """
    screen = Screen(as_json=as_json)

    async def body() -> None:
        from sublet.app.relay import revoke_name

        await asyncio.to_thread(revoke_name, directory, name)

    leave(screen, body)
    if as_json:
        screen.emit({"name": name, "revoked": True})
    else:
        screen.show(f"Revoked {name}.")


def _address(option: str, text: str, *, is_tls: bool = True) -> tuple[str, int]:
    from sublet.daemon.net.addresses import parse_host_port

    try:
        if not is_tls:
            raise ValueError("it is not tls/HOST:PORT")
        return parse_host_port(text)
    except ValueError as error:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"{option} can't be used: {error}", "See sublet relay --help."
        ) from None
