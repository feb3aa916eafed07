"""Options of ``sublet delegate`` that say what goes along, and which of it may be seen and changed."""

from __future__ import annotations

from functools import partial
from typing import Annotated, NamedTuple

import typer

from sublet.cli.options.values import directory_path
from sublet.protocol.bounds import GitMode

PANEL = "What is lent"

_lent = partial(typer.Option, rich_help_panel=PANEL)


class Resource(NamedTuple):
    """A further directory as it was given on the command line."""

    name: str
    path: str
    access_mode: str


def resource(text: str) -> Resource:
    """Return what ``name=PATH``, ``name=PATH:ro`` or ``name=PATH:rw`` names."""
    name, sign, rest = text.partition("=")
    path, mode = (rest[:-3], rest[-2:]) if rest.endswith((":ro", ":rw")) else (rest, "ro")
    if not sign or not name:
        raise typer.BadParameter(f"{text!r} is not NAME=DIR, NAME=DIR:ro or NAME=DIR:rw")
    return Resource(name, directory_path(path), mode)


Resources = Annotated[
    list[Resource] | None,
    _lent(
        "--resource",
        metavar="NAME=DIR[:ro|rw]",
        parser=resource,
        help="Lend DIR too, beside the first, as ../NAME; ro unless said otherwise. Repeatable.",
    ),
]
Git = Annotated[
    GitMode | None,
    _lent("--git", help="How much of .git is seen; not with transport git. [default: hidden]"),
]


class ViewOptions:
    """What goes into the request as it is given, under the names of ``LeaseOptions``."""

    include: Annotated[
        list[str] | None,
        _lent(metavar="PATTERN", help="Only what matches goes along: *.py, docs, src/**. Repeatable."),
    ] = None
    exclude: Annotated[
        list[str] | None,
        _lent(metavar="PATTERN", help="What matches stays here; !PATTERN makes an exception. Repeatable."),
    ] = None
    writable: Annotated[
        list[str] | None,
        _lent(
            metavar="PATH",
            help="Only what lies there may be changed or made, the rest is read-only: src, docs/*.md, **/tmp. "
            "Repeatable.",
        ),
    ] = None
    reveal: Annotated[
        list[str] | None,
        _lent(metavar="PATTERN", help="Show a hidden name after all; policy may deny it. Repeatable."),
    ] = None
    unlock: Annotated[
        list[str] | None,
        _lent(
            metavar="PATTERN",
            help="Let a name be changed that your own tools execute, such as .vscode; policy may deny it. Repeatable.",
        ),
    ] = None
