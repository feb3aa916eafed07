"""Options by which a person says how far an approval or a grant goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.options.values import duration
from sublet.policy.grants import DEFAULT_MAX_USES, DEFAULT_TTL_SECONDS

if TYPE_CHECKING:
    from sublet.daemon.api.approvals import Terms

TtlOption = Annotated[
    int | None, typer.Option("--ttl", metavar="TIME", parser=duration, help="How long it lasts. [default: 5m]")
]
UsesOption = Annotated[int, typer.Option("--max-uses", metavar="N", min=1, help="How often it can be used.")]
AnyFlag = Annotated[
    bool,
    typer.Option("--any-arguments", help="For any arguments, or all that --where allows.", show_default=False),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="NAME=GLOB", help="With --any-arguments: what args.NAME or path must be like."),
]


def terms(ttl: int | None, max_uses: int, any_arguments: bool, where: list[str] | None) -> Terms:
    """Return how far it goes.

    Raises:
        typer.BadParameter: conditions on an exact call, or what is no condition.
    """
    from sublet.daemon.api.approvals import Terms

    if where and not any_arguments:
        raise typer.BadParameter("--where goes with --any-arguments; without it, only the exact call is allowed")
    when: dict[str, str] = {}
    for given in where or []:
        name, equals, glob = given.partition("=")
        if not name or not equals or not glob:
            raise typer.BadParameter(f"{given!r} is no condition; write args.NAME=GLOB or path=GLOB")
        when[name] = glob
    return Terms(
        ttl_seconds=ttl or DEFAULT_TTL_SECONDS,
        max_uses=max_uses or DEFAULT_MAX_USES,
        any_arguments=any_arguments,
        when=when,
    )
