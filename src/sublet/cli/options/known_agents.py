"""Agents as they are named by one word on the command line."""

from __future__ import annotations

import typer

from sublet.protocol.near import did_you_mean


def known_agent(given: str, *, or_file: bool = False) -> str:
    """Return the word of a well-known agent.

    Args:
        given: what was typed.
        or_file: whether it could have been the path of a file, which is not there.

    Raises:
        typer.BadParameter: it is no such word.
    """
    from sublet.supervisor.well_known.catalogue import WELL_KNOWN

    if given in WELL_KNOWN:
        return given
    what = f"there is no file {given!r} and no agent of that name" if or_file else f"no agent is known as {given!r}"
    raise typer.BadParameter(
        f"{what}{did_you_mean(given, WELL_KNOWN)} (known are {', '.join(WELL_KNOWN)}; others are described by an "
        "agent.json)",
        param_hint="--agent" if or_file else "NAME",
    )
