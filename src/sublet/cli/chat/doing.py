"""What each command of a chat does."""

from __future__ import annotations

from dataclasses import dataclass

from sublet.cli.chat.slash import Command, Say, help_text, parse
from sublet.cli.chat.talk import Aim, Talk
from sublet.cli.options.rooms import LAST
from sublet.protocol.errors import LocalCode, SubletError


@dataclass(frozen=True, slots=True)
class Done:
    """What the view does next: end, or put a text into the input line."""

    quit: bool = False
    put: str | None = None


async def do(talk: Talk, typed: str) -> Done:
    """Do what was typed.

    Raises:
        SubletError: it can't be done.
    """
    match parse(typed):
        case None:
            return Done()
        case Say(text):
            await talk.say(text)
        case Command("quit"):
            return Done(quit=True)
        case Command("help"):
            talk.timeline.remark(help_text())
        case Command("clear"):
            talk.timeline.clear_remarks()
        case Command("who"):
            talk.timeline.remark(await talk.who())
        case Command("invite", (entity,)):
            await talk.invite(entity)
        case Command("invitations"):
            talk.timeline.remark(await talk.invitations())
        case Command("accept" | "decline" as name, (given,)):
            talk.timeline.remark(await talk.answer_invitation(given, accept=name == "accept"))
        case Command("attach", (path,)):
            await talk.attach(path)
        case Command("save", arguments):
            given, path = _target(talk, arguments)
            talk.timeline.remark(f"* kept as {await talk.save(given, path or None)}")
        case Command("reply", arguments):
            return await _reply(talk, arguments)
        case Command("edit", arguments):
            return await _edit(talk, arguments)
        case Command("react" | "unreact" as name, arguments):
            given, emoji = arguments if len(arguments) == 2 else (LAST, arguments[0])
            await talk.react(talk.message(given).ref_id, emoji, remove=name == "unreact")
        case Command("delete", arguments):
            await talk.delete(talk.message(arguments[0] if arguments else LAST, own=True).ref_id)
        case Command("redact" | "pin" | "unpin" as name, (given, *reason)):
            await talk.moderate(talk.message(given).ref_id, name, *reason)
        case Command(name):
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"/{name} is written otherwise", "/help says how.")
    return Done()


async def _reply(talk: Talk, arguments: tuple[str, ...]) -> Done:
    given, text = _target(talk, arguments)
    target = talk.message(given)
    if text:
        await talk.send(text, reply_to=target.ref_id)
    else:
        talk.aim = Aim("reply", target.ref_id)
    return Done()


async def _edit(talk: Talk, arguments: tuple[str, ...]) -> Done:
    given, text = _target(talk, arguments)
    target = talk.message(given, own=True)
    if text:
        await talk.edit(target.ref_id, text)
        return Done()
    if target.author != talk.names.me:
        raise SubletError(LocalCode.POLICY_DENIED, "that is not your message", "Answer it: /reply")
    talk.aim = Aim("edit", target.ref_id)
    return Done(put=target.body or "")


def _target(talk: Talk, arguments: tuple[str, ...]) -> tuple[str, str]:
    """Return which message is meant, and the text; a first word that names none belongs to the text."""
    if arguments and talk.is_tag(arguments[0]):
        return arguments[0], " ".join(arguments[1:])
    return LAST, " ".join(arguments)
