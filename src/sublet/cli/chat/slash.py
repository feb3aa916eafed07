"""What is typed into a chat: words to say, or a command that begins with a slash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_line

MAX_SHOWN_CHARS: Final = 40


@dataclass(frozen=True, slots=True)
class WrongUse:
    """How a command is written, and what it does."""

    arguments: str
    text: str
    least: int = 0
    """Arguments that it needs."""
    most: int = 0
    """Arguments that it takes; the last one is the rest of the line."""


COMMANDS: Final = {
    "reply": WrongUse("[ID] [TEXT]", "answer a message; without TEXT, what you type next answers it", 0, 2),
    "react": WrongUse("[ID] EMOJI", "react to a message, the last one by default", 1, 2),
    "unreact": WrongUse("[ID] EMOJI", "take a reaction back", 1, 2),
    "edit": WrongUse("[ID] [TEXT]", "let a message of yours say something else; your last one by default", 0, 2),
    "delete": WrongUse("[ID]", "delete a message of yours, your last one by default", 0, 1),
    "redact": WrongUse("ID [REASON]", "take a message down, as a moderator", 1, 2),
    "pin": WrongUse("ID", "pin a message, as a moderator", 1, 1),
    "unpin": WrongUse("ID", "pin it no longer", 1, 1),
    "attach": WrongUse("FILE", "send a file of up to 16 MiB", 1, 1),
    "save": WrongUse("[ID] [PATH]", "keep the file of a message, here or as PATH", 0, 2),
    "who": WrongUse("", "who is here, and how far they have read"),
    "invite": WrongUse("ENTITY", "invite somebody, who is here once they accept", 1, 1),
    "invitations": WrongUse("", "rooms that you are invited to"),
    "accept": WrongUse("ROOM", "come into one of those, by its id or name", 1, 1),
    "decline": WrongUse("ROOM", "say no to one of those", 1, 1),
    "clear": WrongUse("", "take away what is not from the room"),
    "help": WrongUse("", "this list"),
    "quit": WrongUse("", "leave the view; the room stays"),
}


@dataclass(frozen=True, slots=True)
class Say:
    """Words to say in the room."""

    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command with its arguments."""

    name: str
    arguments: tuple[str, ...] = ()


def parse(typed: str) -> Say | Command | None:
    """Return what was typed; None for nothing. Two slashes at the beginning say one.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: there is no such command, or it is written otherwise.
    """
    if not typed.strip():
        return None
    if not typed.startswith("/") or typed.startswith("//"):
        return Say(typed.removeprefix("/") if typed.startswith("//") else typed)
    name, *rest = typed[1:].split(maxsplit=1) or [""]
    usage = COMMANDS.get(name)
    if usage is None:
        shown = clean_line(name, MAX_SHOWN_CHARS)
        raise SubletError(LocalCode.INVALID_ARGUMENT, f"there is no command /{shown}", "/help lists them; // says a /.")
    arguments = tuple(rest[0].split(maxsplit=usage.most - 1)) if rest and usage.most else tuple(rest)
    if not usage.least <= len(arguments) <= usage.most:
        raise SubletError(LocalCode.INVALID_ARGUMENT, f"write it /{name} {usage.arguments}".rstrip(), usage.text)
    return Command(name, arguments)


def help_text() -> str:
    """Return the list of commands and keys."""
    rows = [f"/{name} {usage.arguments}".rstrip() for name, usage in COMMANDS.items()]
    wide = max(map(len, rows)) + 2
    lines = [f"{row.ljust(wide)}{usage.text}" for row, usage in zip(rows, COMMANDS.values(), strict=True)]
    return "\n".join(
        [
            *lines,
            "",
            "ID is the four letters before a message's author. Enter sends, Alt-Enter begins a new line.",
            "PageUp and PageDown scroll, End goes to the end, Up and Down bring back what you typed.",
            "Esc stops answering or editing, Ctrl-C leaves.",
        ]
    )
