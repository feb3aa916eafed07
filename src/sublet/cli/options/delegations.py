"""Delegations as they are named on the command line: by id, by the beginning of one, or as the newest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.options.completion import complete_delegation
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.near import did_you_mean
from sublet.protocol.text import clean_line

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control

LIST_LIMIT = 500
"""How many delegations are looked through for an abbreviated id."""
MAX_SHOWN_CHARS = 80
NEWEST = "last"
"""What stands for the newest delegation on the command line."""

IdArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="Delegation id, the beginning of one, or `last`.",
        autocompletion=complete_delegation,
        show_default=False,
    ),
]


async def resolve(control: Control, given: str) -> str:
    """Return the full delegation id for a full or abbreviated one, or for ``last``.

    Raises:
        SubletError: ``NOT_FOUND`` for none, ``INVALID_ARGUMENT`` for an abbreviation that fits several.
    """
    from sublet.protocol.ids import DELEGATION_ID

    if DELEGATION_ID.match(given):
        return given
    if not given:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, "the id is an empty name", "Give an id, the beginning of one, or `last`."
        )
    from sublet.daemon.api.delegation_fields import ListNewest
    from sublet.daemon.api.delegations import LIST_DELEGATIONS

    known = await control.call(LIST_DELEGATIONS, ListNewest(limit=LIST_LIMIT))
    start = given if given.startswith("dlg_") else f"dlg_{given}"
    if given == NEWEST:
        fitting = [view.delegation_id for view in known[:1]]
    else:
        fitting = [view.delegation_id for view in known if view.delegation_id.startswith(start)]
    match fitting:
        case [one]:
            return one
        case []:
            raise SubletError(
                LocalCode.NOT_FOUND,
                f"there is no delegation {clean_line(given, MAX_SHOWN_CHARS)!r}"
                + did_you_mean(start, (view.delegation_id[: len(start)] for view in known)),
                "Run `sublet ls --all` to see them all.",
            )
        case _:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"{clean_line(given, MAX_SHOWN_CHARS)!r} fits {len(fitting)} delegations",
                "Give more characters of the id; `sublet ls --all` shows them.",
            )
