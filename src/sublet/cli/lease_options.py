"""Options of ``sublet delegate`` that say to whom, for how long, within which limits, and how one goes along."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from sublet.cli.options import branch_name, byte_count, complete_peer, duration

LEASE = "Lease"
LIMITS = "Limits"
GOING_ALONG = "Going along"


class Transport(StrEnum):
    """What ``--transport`` takes."""

    SSHFS = "sshfs"
    ARCHIVE = "archive"
    GIT = "git"
    AUTO = "auto"


To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="PEER",
        help="Paired peer, name or name/agent.",
        autocompletion=complete_peer,
        rich_help_panel=LEASE,
    ),
]
ReadOnly = Annotated[
    bool, typer.Option("--ro", help="Lend for reading only.", show_default=False, rich_help_panel=LEASE)
]
Staged = Annotated[
    bool,
    typer.Option(
        "--staged",
        help="Lend a copy; nothing changes here before you apply it.",
        show_default=False,
        rich_help_panel=LEASE,
    ),
]
ResultBranch = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        parser=branch_name,
        help="As --staged, and put the result on a new git branch at the end.",
        rich_help_panel=LEASE,
    ),
]
Ttl = Annotated[
    int | None,
    typer.Option(
        metavar="TIME",
        parser=duration,
        help="How long: seconds, or 15m, 2h. [default: 1h]",
        rich_help_panel=LEASE,
    ),
]
Wait = Annotated[
    bool,
    typer.Option("--wait", help="Wait for a peer that is offline.", show_default=False, rich_help_panel=LEASE),
]
HowFilesTravel = Annotated[
    Transport,
    typer.Option(
        help="How the files travel: archive and git need no FUSE there; auto: sshfs, else archive.",
        rich_help_panel=LEASE,
    ),
]
MaxTotalBytes = Annotated[
    int | None,
    typer.Option(
        metavar="SIZE",
        parser=byte_count,
        help="How much may be added: bytes, or 10M, 2G.",
        rich_help_panel=LIMITS,
    ),
]
MaxFiles = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="How many files, links and directories may be added.",
        rich_help_panel=LIMITS,
    ),
]
MaxFileBytes = Annotated[
    int | None,
    typer.Option(metavar="SIZE", parser=byte_count, help="How large a file may grow.", rich_help_panel=LIMITS),
]
RequireSandbox = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ITEM[,ITEM]",
        help="Lend only to a peer that enforces these: cwd_only, allow_network, memory, processes, cpu_time, "
        "output, scratch.",
        rich_help_panel=LIMITS,
    ),
]
Background = Annotated[
    bool,
    typer.Option(
        "--background", "-b", help="Return at once with the id.", show_default=False, rich_help_panel=GOING_ALONG
    ),
]
Watch = Annotated[
    bool,
    typer.Option(
        "--watch",
        help="Tell you and the peer's agent what others change meanwhile.",
        show_default=False,
        rich_help_panel=GOING_ALONG,
    ),
]
Notify = Annotated[
    bool,
    typer.Option(
        "--notify",
        help="Show a desktop notice at the end, or ring the bell.",
        show_default=False,
        rich_help_panel=GOING_ALONG,
    ),
]
Description = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Short title; by default the prompt's first line.", rich_help_panel=GOING_ALONG),
]
