"""Options of ``sublet delegate`` that say to whom, for how long, within which limits, and how one goes along."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from sublet.cli.options.completion import complete_peer
from sublet.cli.options.values import branch_name, byte_count, duration
from sublet.protocol.bounds import TransportWish

LEASE = "Lease"
LIMITS = "Limits"
GOING_ALONG = "Going along"

_lease = partial(typer.Option, rich_help_panel=LEASE)
_limits = partial(typer.Option, rich_help_panel=LIMITS)
_going_along = partial(typer.Option, rich_help_panel=GOING_ALONG)


To = Annotated[
    str,
    _lease(
        "--to",
        metavar="PEER",
        help="Paired peer, name or name/agent; AGENT@NODE; capability:NAME.",
        autocompletion=complete_peer,
    ),
]
ReadOnly = Annotated[bool, _lease("--ro", help="Lend for reading only.", show_default=False)]
Staged = Annotated[
    bool,
    _lease("--staged", help="Lend a copy; nothing changes here before you apply it.", show_default=False),
]
ResultBranch = Annotated[
    str | None,
    _lease(metavar="NAME", parser=branch_name, help="As --staged, and put the result on a new git branch at the end."),
]
Ttl = Annotated[
    int | None,
    _lease(metavar="TIME", parser=duration, help="How long: seconds, or 15m, 2h. [default: 1h]"),
]
Wait = Annotated[
    bool,
    _lease("--wait", help="Wait for a peer that is offline.", show_default=False),
]
HowFilesTravel = Annotated[
    TransportWish,
    _lease(help="How the files travel: archive and git need no FUSE there; auto: sshfs, else archive."),
]
RequireSandbox = Annotated[
    list[str] | None,
    _limits(
        metavar="ITEM[,ITEM]",
        help="Lend only to a peer that enforces these: cwd_only, allow_network (that there is none), memory, "
        "processes, cpu_time, output, scratch; allow_network=true and the like where it must declare so.",
    ),
]
Background = Annotated[
    bool,
    _going_along("--background", "-b", help="Return at once with the id.", show_default=False),
]
Notify = Annotated[
    bool,
    _going_along("--notify", help="Show a desktop notice at the end, or ring the bell.", show_default=False),
]


class LeaseSaid:
    """What goes into the request as it is given, under the names of ``CreateDelegation``."""

    max_total_bytes: Annotated[
        int | None,
        _limits(metavar="SIZE", parser=byte_count, help="How much may be added: bytes, or 10M, 2G."),
    ] = None
    max_files: Annotated[
        int | None,
        _limits(metavar="N", min=0, help="How many files, links and directories may be added."),
    ] = None
    max_file_bytes: Annotated[
        int | None,
        _limits(metavar="SIZE", parser=byte_count, help="How large a file may grow."),
    ] = None
    keep_all: Annotated[
        bool,
        _limits(
            "--keep-all",
            help="Refuse what the executor overwrites where its state before can't be kept, so that all can be undone.",
            show_default=False,
        ),
    ] = False
    no_delete: Annotated[
        bool,
        _limits(
            "--no-delete",
            help="Let the executor make and write, but delete, rename or replace nothing that it has not made.",
            show_default=False,
        ),
    ] = False
    deny: Annotated[
        list[str] | None,
        _limits("--deny", metavar="TOOL", help="The agent may not call it: shell.exec, network. Repeatable."),
    ] = None
    only: Annotated[
        list[str] | None,
        _limits("--only", metavar="TOOL", help="The agent may call this alone: file.*. Repeatable."),
    ] = None
    watch: Annotated[
        bool,
        _going_along("--watch", help="Tell you and the peer's agent what others change meanwhile.", show_default=False),
    ] = False
    description: Annotated[
        str | None,
        _going_along(metavar="TEXT", help="Short title; by default the prompt's first line."),
    ] = None
