"""Asks an agent of another node, where what is typed begins with its address."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import typer

from sublet.cli.errors import Exit
from sublet.cli.rendering.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean

if TYPE_CHECKING:
    from sublet.daemon.api.federation import TaskAnswer
    from sublet.daemon.control.client import ControlClient as Control

MAX_PIECE_CHARS = 1 << 20


def addressed(text: str) -> tuple[str, str] | None:
    """Return the address and the rest of what begins ``@AGENT@NODE``; None where it begins otherwise.

    Raises:
        typer.BadParameter: nothing stands behind the address.
    """
    first, *rest = text.split(None, 1)[:2] or [""]
    name = first.rstrip(":,")
    if not name.startswith("@") or "@" not in name[1:]:
        return None
    if not rest:
        raise typer.BadParameter(f"say what {clean(name)} is to do, behind its address")
    return name[1:], rest[0].strip()


async def ask_elsewhere(
    control: Control, screen: Screen, to: str, text: str, seconds: int | None, *, wait: bool
) -> Exit | None:
    """Give an agent of any node a task, show what it says as it comes, then what came of it."""
    from sublet.daemon.api.federation import ASK_AGENT, AskAgent, TaskAnswer, TaskBegun
    from sublet.daemon.api.sessions import AskOutput

    request = AskAgent(to=to, text=text, timeout_seconds=seconds, wait=wait)
    async with aclosing(control.stream(ASK_AGENT, request)) as updates:
        async for update in updates:
            match update:
                case TaskBegun() if not screen.as_json:
                    screen.note(f"[{clean(update.target)}: {clean(update.reason)}]")
                case AskOutput() if update.text and not screen.as_json:
                    screen.err.print(clean(update.text, MAX_PIECE_CHARS), end="", style="dim", soft_wrap=True)
                case TaskAnswer():
                    return _end(screen, update)
    raise SubletError(LocalCode.INTERNAL, "the answer broke off", "See the daemon's log.")


def _end(screen: Screen, found: TaskAnswer) -> Exit | None:
    if screen.as_json:
        screen.emit(found.model_dump(mode="json", by_alias=True))
    if isinstance(found.result, str):
        if not screen.as_json:
            screen.out.print(clean(found.result, MAX_PIECE_CHARS), soft_wrap=True)
        return None
    if not screen.as_json:
        code = found.result.metadata.get("error_code")
        told = f"{code}: {found.result.output}" if code else found.result.output
        screen.err.print(clean(told, MAX_PIECE_CHARS), style="red", soft_wrap=True)
        for warning in found.warnings:
            screen.note(clean(warning))
    return Exit.ERROR
