"""Values of options and arguments: how durations, sizes, ids, paths and addresses are read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sublet.protocol.patterns import Pattern

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import ValidationError

JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print one JSON value on stdout and nothing else.", show_default=False)
]

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = Pattern(r"([0-9]{1,9})([smhd]?)")
_SIZE = Pattern(r"([0-9]{1,15})([KMGT]?)(?:i?B)?", ignore_case=True)
_BRANCH = Pattern(r"[A-Za-z0-9_][A-Za-z0-9_./+@=-]*")
MAX_BRANCH_CHARS = 200


def typed(ctx: typer.Context, name: str) -> bool:
    """Tell whether an option was given, also where it was given its default."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def duration(text: str) -> int:
    """Return the seconds of ``90``, ``90s``, ``15m``, ``2h`` or ``1d``."""
    match = _DURATION.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise typer.BadParameter(f"{text!r} is no length of time: give seconds, or 90s, 15m, 2h, 1d")
    return int(match[1]) * _SECONDS[match[2]]


def byte_count(text: str) -> int:
    """Parse a number of bytes: ``500000``, ``20K``, ``500M``, ``2G``; the units are powers of 1,024."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is no size; write 500000, 20K, 500M or 2G")
    return int(match[1]) << (10 * " KMGT".index(match[2].upper() or " "))


def branch_name(text: str) -> str:
    """Return the name of a git branch, in letters that are safe in one everywhere."""
    if len(text) > MAX_BRANCH_CHARS or not _BRANCH.fullmatch(text):
        raise typer.BadParameter(f"{text!r} can't be the name of a branch; give one such as bob/repair")
    return text


def whole_id(given: str, known: Sequence[str]) -> str:
    """Return the id that ``given`` begins, with or without its kind, or the newest one for ``last``.

    Args:
        given: as it was typed.
        known: ids, the newest first.

    Raises:
        typer.BadParameter: it fits several.
    """
    if given in known:
        return given
    fitting = known[:1] if given == "last" else [one for one in known if given and given in _beginnings(one, given)]
    if len(fitting) > 1:
        raise typer.BadParameter(f"{given!r} fits {len(fitting)} ids; give more characters")
    return fitting[0] if fitting else given  # the daemon says that there is none


def _beginnings(one: str, given: str) -> tuple[str, str]:
    return one[: len(given)], one.partition("_")[2][: len(given)]


def directory_path(given: str) -> str:
    """Return the absolute path of a directory that was named, as the daemon, which works elsewhere, needs it.

    Raises:
        typer.BadParameter: an empty name, as an unset variable leaves it, would mean the working directory; and one
            that is not UTF-8 can't be told to the daemon.
    """
    if not given:
        raise typer.BadParameter("the directory is an empty name; for this one, write .")
    try:
        path = str(Path(given).expanduser().absolute())
    except (RuntimeError, ValueError):
        raise typer.BadParameter(f"there is no user of that name, so {given!r} is no directory") from None
    try:
        path.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("the path is not UTF-8; rename the directory, or lend the one above it") from None
    return path


def address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT`` or ``[IPV6]:PORT``; port 0 is any free one."""
    from sublet.daemon.net.addresses import parse_host_port

    try:
        return parse_host_port(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not HOST:PORT, as in 127.0.0.1:8642 or [::1]:0") from None


def wrong_value(error: ValidationError, typed: Mapping[str, str] | None = None) -> typer.BadParameter:
    """Return what is wrong with the first value that a request does not take, by the name under which it was typed.

    Args:
        error: why the request was not made.
        typed: the option or argument of a field, where it has another name.
    """
    from sublet.protocol.faults import fault_words

    first = error.errors(include_url=False, include_input=False)[0]
    field, *rest = [str(part) for part in first["loc"]] or [""]
    bounds = first.get("ctx") or {}
    if first["type"] in ("string_too_long", "too_long"):
        what = "characters" if first["type"] == "string_too_long" else "of them"
        words = f"it has more than {bounds['max_length']:,} {what}"
    else:
        words = fault_words(first)
    name = (typed or {}).get(field)
    return (
        typer.BadParameter(words, param_hint=name)
        if name
        else typer.BadParameter(f"{'.'.join([field, *rest])}: {words}" if field else words)
    )
