"""``sublet config``: the configuration that holds, and where each value comes from."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from sublet.cli.help import Defaulting, Sectioned, group
from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import leave, session_of
from sublet.cli.rendering.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sublet.daemon.api.configuration import ConfigEntry, ConfigView
    from sublet.daemon.api.daemon import StatusView

config = group("config", "The configuration: every value, and where it comes from.", cls=Defaulting)


@config.command(cls=Sectioned, name="show")
def config_show(
    ctx: typer.Context,
    chosen: Annotated[bool, typer.Option("--chosen", help="Only what is no default.", show_default=False)] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print every value that holds, and where it comes from.

    Options of `sublet up` come before config.json, and that before defaults. Where the running daemon uses another port
    than that, since it was taken or any free one was asked for, the one in force is told, too. Where no daemon runs, it
    is what one would begin with. Secrets are left out.
    """
    screen, session = Screen(as_json=as_json), session_of(ctx)

    async def ask() -> ConfigView:
        from sublet.daemon.api.configuration import SHOW_CONFIG
        from sublet.daemon.api.daemon import SHOW_STATUS
        from sublet.daemon.api.operation import Nothing

        try:
            async with session.connect() as control:
                found = await control.call(SHOW_CONFIG, Nothing())
                return _with_ports(found, await control.call(SHOW_STATUS, Nothing()))
        except SubletError as error:
            if error.code != LocalCode.DAEMON_UNAVAILABLE:
                raise
            return await asyncio.to_thread(_local)

    found = leave(screen, ask)
    values = [one for one in found.values if not chosen or one.origin != "default"]
    if as_json:
        screen.emit(found.model_copy(update={"values": values}).model_dump(mode="json"))
        return
    if values:
        screen.show(_table(values))
    screen.note(found.file if found.file_exists else f"There is no {found.file}.")
    if not found.running:
        screen.note("No daemon is running; this is what one would begin with.")
    if found.problem is not None:
        screen.note(f"The file can't be read any more: {found.problem}")
    elif found.stale:
        screen.note("The file says something else than when the daemon began: sublet down, sublet up --detach")


def _with_ports(found: ConfigView, status: StatusView) -> ConfigView:
    """Tell where the daemon really listens, where that is not what was asked for."""
    real = {
        "a2a": urlsplit(status.a2a_url).netloc,
        "sftp": status.sftp,
        "zenoh": status.bus,
        "web": urlsplit(status.web).netloc if status.web else None,
    }
    if any(one.name == "public_url" and one.value is not None for one in found.values):
        del real["a2a"]  # what the daemon is told to be known by says nothing of where it listens

    def told(entry: ConfigEntry) -> ConfigEntry:
        port = (real.get(entry.name) or "").rpartition(":")[2]
        if not port.isdigit() or not isinstance(entry.value, str) or entry.value.endswith(f":{port}"):
            return entry
        return entry.model_copy(update={"in_force": real[entry.name]})

    return found.model_copy(update={"values": [told(one) for one in found.values]})


def _table(values: list[ConfigEntry]) -> RenderableType:
    from rich.text import Text

    from sublet.cli.rendering.columns import Columns
    from sublet.cli.rendering.words import whole_line

    def shown(entry: ConfigEntry) -> str:
        if entry.value is None:
            return "-"
        said = whole_line(entry.value if isinstance(entry.value, str) else json.dumps(entry.value, ensure_ascii=False))
        return said if entry.in_force is None else f"{said}  (in force: {whole_line(entry.in_force)})"

    rows = [
        [
            Text(one.name),
            Text(str(one.source or one.origin), style="dim" if one.origin == "default" else ""),
            Text(shown(one)),
        ]
        for one in values
    ]
    return Columns(["name", "from", "value"], rows)


def _local() -> ConfigView:
    """Return what a daemon would begin with."""
    from sublet.daemon.config.config_view import config_view
    from sublet.daemon.config.daemon_config import DaemonConfig

    return config_view(DaemonConfig(), running=False)
