"""Commands that ask the supervisor: ask, answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.commands.asking.ask_elsewhere import addressed, ask_elsewhere
from sublet.cli.errors import Exit, exit_for
from sublet.cli.help import verbatim
from sublet.cli.options.given_text import text_of
from sublet.cli.options.sessions import SessionOption, resolve_session
from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen
from sublet.protocol.bounds import MAX_PROMPT_CHARS
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.faults import fault_words
from sublet.protocol.text import clean

if TYPE_CHECKING:
    from sublet.daemon.api.sessions import AskAnswer, AskBegun, AskRequest
    from sublet.daemon.control.client import ControlClient as Control

MAX_PIECE_CHARS = 1 << 20
MAX_SCHEMA_BYTES = 1 << 16
RECENT_MESSAGES = 50
"""Messages among which that of a request which has just ended is looked for."""
EPILOG = verbatim(
    (
        "Whom to ask",
        """sublet ask "Which tests fail?"            the router decides
sublet ask "@coder fix them"              an agent by its name; or --agent coder
sublet ask "@coder@kitchen fix them"      an agent of another node; see sublet nodes
sublet ask "/hub jira create a ticket"    a module, past the router
sublet ask "/agents"                      who is there""",
    ),
)


def ask(
    ctx: typer.Context,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="What to do; - reads it from stdin.", show_default=False)
    ] = None,
    session: SessionOption = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="ID", help="Who is to do it. [default: the router decides]")
    ] = None,
    answer_: Annotated[
        str | None, typer.Option("--answer", metavar="TEXT", help="Answer the question that the session waits with.")
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            "--schema", metavar="FILE", help="JSON Schema that the answer has to satisfy.", show_default=False
        ),
    ] = None,
    mask: Annotated[
        list[str] | None,
        typer.Option(
            "--mask", metavar="POINTER", help="Field of such an answer to keep, as /items/*/id; may be repeated."
        ),
    ] = None,
    on_failure: Annotated[
        str | None,
        typer.Option(
            "--on-failure", metavar="END", help="Without such an answer: ask_human or reject. [default: as configured]"
        ),
    ] = None,
    deny: Annotated[
        list[str] | None,
        typer.Option("--deny", metavar="TOOL", help="No agent may call it for this: shell.exec, network. Repeatable."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="TOOL", help="Agents may call this alone: file.*. Repeatable."),
    ] = None,
    seconds: Annotated[
        int | None,
        typer.Option(
            "--timeout", metavar="SECONDS", min=1, help="How long another node's agent may take.", show_default=False
        ),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait for an agent of another node that is not there.", show_default=False),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Ask one of your own agents.

    Begin with @AGENT@NODE for one of another node, which needs no session.

    The supervisor decides who it goes to, and a session remembers that. With --session the agent goes on where it was,
    if it can.
    """
    screen = Screen(as_json=as_json)
    if (text is None) == (answer_ is None):
        raise typer.BadParameter("give what to do, or --answer with the answer to a question")
    if answer_ is not None and session is None:
        raise typer.BadParameter("--answer needs --session, which waits for it")
    elsewhere = addressed(text) if text is not None else None
    if elsewhere is None and (seconds is not None or wait):
        raise typer.BadParameter("--timeout and --wait are for an agent of another node: @AGENT@NODE …")
    if elsewhere is not None:
        if session or agent or schema or mask or on_failure or deny or only:
            raise typer.BadParameter("an agent of another node takes --timeout and --wait alone")
        _asked_elsewhere(ctx, screen, *elsewhere, seconds, wait=wait)
        return
    if schema is None and (mask or on_failure):
        raise typer.BadParameter("--mask and --on-failure need --schema")
    guard: dict[str, object] = {"mask": mask or None, "on_failure": on_failure, "deny": deny or [], "only": only or []}
    guard["answer_schema"] = read_schema(schema) if schema is not None else None
    _asked(ctx, screen, answer_ or text or "", session, agent, answer=answer_ is not None, guard=guard)


def _asked_elsewhere(
    ctx: typer.Context, screen: Screen, to: str, text: str, seconds: int | None, *, wait: bool
) -> None:
    wanted = text_of(text, MAX_PROMPT_CHARS, "the text")

    async def body(control: Control) -> Exit | None:
        return await ask_elsewhere(control, screen, to, wanted, seconds, wait=wait)

    run(ctx, screen, body)


def answer(
    ctx: typer.Context,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Session that asks, or last.", show_default=False)],
    text: Annotated[
        str,
        typer.Argument(metavar="TEXT", help="An option by name or number, or what is meant.", show_default=False),
    ],
    as_json: JsonFlag = False,
) -> None:
    """Answer the question that a session waits with.

    Then its request goes on.
    """
    _asked(ctx, Screen(as_json=as_json), text, session, None, answer=True)


def _asked(
    ctx: typer.Context,
    screen: Screen,
    text: str,
    session: str | None,
    agent: str | None,
    *,
    answer: bool,
    guard: Mapping[str, object] | None = None,
) -> None:
    wanted = text_of(text, MAX_PROMPT_CHARS, "the text")

    async def body(control: Control) -> Exit | None:
        from pydantic import ValidationError

        from sublet.daemon.api.sessions import AskRequest

        found = await resolve_session(control, session) if session is not None else None
        try:
            asked = {"text": wanted, "session_id": found, "agent": agent, "answer": answer, **(guard or {})}
            request = AskRequest.model_validate(asked)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise SubletError(
                LocalCode.INVALID_ARGUMENT, f"{where}: {fault_words(first)}", "See: sublet ask --help"
            ) from None
        return await _follow(control, screen, request)

    run(ctx, screen, body)


def read_schema(path: Path) -> object:
    """Return the JSON in a file; what kind of schema it is the daemon finds out.

    Raises:
        typer.BadParameter: it can't be read, or is no JSON.
    """
    try:
        with path.open("rb") as file:
            return json.loads(file.read(MAX_SCHEMA_BYTES + 1))
    except OSError as error:
        raise typer.BadParameter(f"{path} can't be read: {error.strerror}", param_hint="--schema") from None
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"{path} is no JSON: {error}", param_hint="--schema") from None


async def _follow(control: Control, screen: Screen, request: AskRequest) -> Exit | None:
    """Show what is said as it comes, then what came of it."""
    from sublet.daemon.api.sessions import ASK, AskAnswer, AskBegun, AskOutput

    begun: AskBegun | None = None
    told = ""
    try:
        async with aclosing(control.stream(ASK, request)) as updates:
            async for update in updates:
                match update:
                    case AskBegun():
                        begun = update
                    case AskOutput() if update.text:
                        told = _piece(screen, update, told)
                    case AskAnswer():
                        return _end(screen, update, told)
    except SubletError as error:
        if not screen.as_json or begun is None:
            raise
        ids = begun.model_dump(mode="json", by_alias=True)
        decided = await _decided(control, begun)
        screen.emit({**ids, "routeDecision": decided, "result": None, "error": error.as_json()})
        return exit_for(str(error.code))
    raise SubletError(LocalCode.INTERNAL, "the answer broke off", "See the daemon's log.")


async def _decided(control: Control, begun: AskBegun) -> str | None:
    """Return where a request went that has failed, as its session remembers it; None where it did not come so far."""
    from sublet.daemon.api.sessions import GET_SESSION, ShowSession

    request = ShowSession(session_id=begun.finger_session_id, messages=RECENT_MESSAGES)
    try:
        found = await control.call(GET_SESSION, request)
    except SubletError:
        return None
    return next(
        (one.route_decision for one in found.messages if one.request_id == begun.request_id and one.route_decision),
        None,
    )


def _piece(screen: Screen, update: object, told: str) -> str:
    from sublet.daemon.api.sessions import AskOutput

    assert isinstance(update, AskOutput)
    if screen.as_json:
        return told
    text = clean(update.text, MAX_PIECE_CHARS)
    if update.stream == "stdout":
        screen.out.print(text, end="", soft_wrap=True)
        return told + text[-1:]
    screen.err.print(text, end="", style="dim", soft_wrap=True)
    return told


def _end(screen: Screen, found: AskAnswer, told: str) -> Exit | None:
    if screen.as_json:
        screen.emit(found.model_dump(mode="json", by_alias=True))
    elif found.result is not None:
        if not told:
            screen.out.print(clean(found.result, MAX_PIECE_CHARS), soft_wrap=True)
        elif not told.endswith("\n"):
            screen.out.print()
    for warning in found.warnings:
        screen.note(f"Note: {clean(warning)}")
    if found.question is not None:
        screen.show(clean(found.question))
        screen.note(f"{clean(found.reason)}. Answer: sublet answer {found.finger_session_id} TEXT")
        return Exit.QUESTION
    if found.route_decision == "reject":
        if not screen.as_json:
            screen.fail(SubletError(LocalCode.NO_ROUTE, found.reason, "`sublet agents` lists who is there."))
        return Exit.DECLINED
    by = f"{found.agent_id}, " if found.agent_id not in (None, "supervisor") else ""
    screen.note(f"[{by}{clean(found.reason)}; session {found.finger_session_id}]")
    return None
