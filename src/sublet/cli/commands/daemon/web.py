"""``sublet web``: a login link for the local web page."""

from __future__ import annotations

import html
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control

OPENERS = ("xdg-open", "sensible-browser", "x-www-browser")
OPEN_FILE = "open-web.html"


def web(
    ctx: typer.Context,
    open_browser: Annotated[
        bool, typer.Option("--open", "-o", help="Open it in a browser at once.", show_default=False)
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print a link that logs a browser in to the web page.

    The link is good once, within two minutes. The page is on this machine alone.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.web_logins import CREATE_WEB_LOGIN, DEFAULT_LINK_SECONDS, CreateWebLogin

        opener = _opener() if open_browser else None
        login = await control.call(CREATE_WEB_LOGIN, CreateWebLogin(ttl_seconds=DEFAULT_LINK_SECONDS))
        if as_json:
            screen.emit(login.model_dump(mode="json"))
        else:
            from sublet.cli.rendering.delegations import local_time

            screen.out.print(login.url, soft_wrap=True)
            until = local_time(login.expires_at)
            screen.note(f"It logs in once, until {until}. It is for you alone: do not pass it on.")
        if opener is not None:
            _open(opener, login.url)

    run(ctx, screen, body)


def _opener() -> str:
    """Return the program that opens a browser.

    Raises:
        SubletError: ``UNAVAILABLE`` where there is none; no link is made then.
    """
    for name in OPENERS:
        if found := shutil.which(name):
            return found
    raise SubletError(
        LocalCode.UNAVAILABLE,
        "there is no program that opens a browser",
        "Run `sublet web` and open the link yourself.",
    )


def _open(opener: str, url: str) -> None:
    """Open ``url`` by way of a private file: as an argument, everybody on this machine could read its secret."""
    from sublet.daemon.config.paths import resolve_home
    from sublet.disk.durable import write_whole

    file = Path(resolve_home().state_dir) / OPEN_FILE
    page = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={html.escape(url)}">'
    write_whole(file, page.encode())
    nothing = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
    # Not waited for: some of these programs go on as long as the browser.
    os.posix_spawn(opener, [opener, str(file)], os.environ, file_actions=nothing, setsid=True)
