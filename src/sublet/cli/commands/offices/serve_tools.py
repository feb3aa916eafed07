"""``sublet office serve-tools``: make MCP servers of this machine a Computer of an office."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.commands.offices.office import office
from sublet.cli.help import Sectioned, verbatim
from sublet.cli.options.given_text import STDIN, from_stdin
from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import Connect, leave, session_of
from sublet.cli.rendering.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError

if TYPE_CHECKING:
    from sublet.app.computer import ComputerReady, GivenToken
    from sublet.office_client.link import Place

BETWEEN = "---"
"""Between the commands of two servers."""
EPILOG = verbatim(
    (
        "Examples",
        """sublet office token desk --role computer --name laptop --json > laptop.json
sublet office serve-tools desk --token-file laptop.json -- uvx mcp-server-git
sublet office serve-tools https://desk.example:8648/OFFICE_ID --name laptop \\
    --token-file - --server git --server files -- uvx mcp-server-git --- npx files ~/notes""",
    ),
)


@office.command(cls=Sectioned, name="serve-tools", epilog=EPILOG)
def serve_tools(
    ctx: typer.Context,
    office_name: Annotated[
        str,
        typer.Argument(
            metavar="OFFICE", help="An office of this machine by name or id, or URL/ID of any.", show_default=False
        ),
    ],
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND", help="What starts the MCP server.", show_default=False)
    ],
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="For whom the token is. [default: as the token file says]",
            show_default=False,
        ),
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The token, or all that `office token --json` prints; - is stdin. [default: SUBLET_OFFICE_TOKEN]",
            show_default=False,
        ),
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What the office calls a server; repeatable. [default: its program's name]",
            show_default=False,
        ),
    ] = None,
    uploads: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where uploads of the Agent land; without it none is taken.", show_default=False
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make MCP servers of this machine a Computer of an office.

    The commands are yours: they run as you, with your environment and without a sandbox. From the office come
    arguments of tool calls, and nothing else. It joins again when it was cut off, and runs no call twice.
    """
    screen, connect = Screen(as_json=as_json), session_of(ctx).connect

    async def body() -> None:
        from sublet.app.computer import place_of, read_token, run_computer, server_commands
        from sublet.daemon.logs.logging import configure_logging

        token = read_token(_given(token_file))
        commands = server_commands(_split(command), server or [], os.environ, Path.cwd())
        called = name or token.name
        if not called:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT, "a token alone does not say for whom it is", "Say it: --name NAME."
            )
        fixed = place_of(office_name, token)
        configure_logging("info")

        async def place() -> Place:
            return fixed or await _here(connect, office_name, token)

        told = False

        def ready(joined: ComputerReady) -> None:
            nonlocal told
            if told:
                return
            told = True
            if as_json:
                screen.emit(asdict(joined))
                return
            screen.show(f"{joined.name} is in the office {joined.office_id} with {len(joined.tools)} tools.")
            screen.note("What the Agent calls runs as you. Ctrl-C ends it.")

        await run_computer(called, commands, place, token, uploads, ready)

    leave(screen, body)


async def _here(connect: Connect, office: str, token: GivenToken) -> Place:
    """Return where an office of this machine is served now."""
    from sublet.daemon.api.offices import LIST_OFFICES
    from sublet.daemon.api.operation import Nothing
    from sublet.office_client.link import Place

    async with connect() as control:
        known = await control.call(LIST_OFFICES, Nothing())
    for one in known.offices:
        if office in (one.name, one.office_id):
            if known.url is None:
                raise SubletError(LocalCode.UNAVAILABLE, "offices are not served", "See `sublet status` for why.")
            return Place(known.url, one.office_id, token.certificate or _der(known.certificate))
    raise SubletError(
        LocalCode.NOT_FOUND,
        "there is no office of that name",
        "See `sublet office list`; one of another machine is named by URL/ID.",
    )


def _der(pem: str | None) -> bytes | None:
    import ssl

    return None if pem is None else ssl.PEM_cert_to_DER_cert(pem)


def _split(words: list[str]) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for word in words:
        if word == BETWEEN:
            found.append([])
        else:
            found[-1].append(word)
    return found


def _given(token_file: str | None) -> str:
    from sublet.app.computer import MAX_TOKEN_CHARS, TOKEN_VARIABLE

    if token_file is None:
        return os.environ.get(TOKEN_VARIABLE, "")
    if token_file == STDIN:
        return from_stdin(MAX_TOKEN_CHARS, "the token")
    try:
        with Path(token_file).open(encoding="utf-8") as file:
            return file.read(MAX_TOKEN_CHARS)
    except (OSError, UnicodeError) as error:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"the token can't be read from {token_file}: {error}", "Is it a file of yours?"
        ) from None
