"""Panels as they are named on the command line, and the options of ``sublet delegate`` that make one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.options.values import duration
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.panels import MAX_MEMBERS, MIN_MEMBERS
from sublet.protocol.text import clean_line

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control

_panel = partial(typer.Option, rich_help_panel="Panel")


class PanelSaid:
    """What goes into the request for a panel as it is given, under the names of ``CreatePanel``."""

    members: Annotated[
        int | None,
        _panel(
            "--panel",
            metavar="N",
            min=MIN_MEMBERS,
            max=MAX_MEMBERS,
            help="Give the task to N agents at once, each with a staged copy of one snapshot. "
            "--to is capability:NAME, or N agents with commas between.",
        ),
    ] = None
    check: Annotated[
        str | None,
        _panel("--check", metavar="COMMAND", help="Run it on each result, in the sandbox, without network."),
    ] = None
    check_seconds: Annotated[
        int | None,
        _panel("--check-time", metavar="TIME", parser=duration, help="How long that may take. [default: 10m]"),
    ] = None
    first: Annotated[
        bool,
        _panel("--first", help="Stop the others once a result has passed the check.", show_default=False),
    ] = False
    max_agent_seconds: Annotated[
        int | None,
        _panel("--agent-time", metavar="TIME", parser=duration, help="Stop all when they have worked so long in sum."),
    ] = None


async def panel_of(control: Control, given: str) -> str | None:
    """Return the full id of a panel for a full or abbreviated one; None where it is none of a panel.

    Raises:
        SubletError: ``NOT_FOUND`` for none, ``INVALID_ARGUMENT`` for an abbreviation that fits several.
    """
    from sublet.protocol.ids import PANEL_ID, is_panel

    if not is_panel(given):
        return None
    if PANEL_ID.fullmatch(given):
        return given
    from sublet.cli.options.delegations import LIST_LIMIT
    from sublet.daemon.api.delegation_fields import ListNewest
    from sublet.daemon.api.delegations import LIST_DELEGATIONS

    views = await control.call(LIST_DELEGATIONS, ListNewest(limit=LIST_LIMIT))
    fitting = {one.panel_id for one in views if one.panel_id is not None and one.panel_id.startswith(given)}
    if len(fitting) == 1:
        return fitting.pop()
    shown = repr(clean_line(given, 80))
    if not fitting:
        raise SubletError(LocalCode.NOT_FOUND, f"there is no panel {shown}", "Run `sublet ls --all` to see them all.")
    raise SubletError(
        LocalCode.INVALID_ARGUMENT, f"{shown} fits {len(fitting)} panels", "Give more characters of the id."
    )
