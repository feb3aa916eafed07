"""``sublet replay``: whether what was decided in a session is decided the same way again."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.ask_cmds import resolve_session
from sublet.cli.connection import run
from sublet.cli.errors import Exit
from sublet.cli.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_line

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control
    from sublet.protocol.events import Event
    from sublet.supervisor.replay import Answer, Question

PAGE = 500
MAX_EVENTS = 20_000


def replay(
    ctx: typer.Context,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Its id; or last.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.", show_default=False)] = False,
) -> None:
    """Decide again what was decided in a session, and compare.

    Routes, policy as it is now, chains, and answers that did not satisfy their schema; of failures, their class. No
    agent is asked and nothing is changed. What was cut or not recorded is listed as not replayable.
    """
    screen = Screen(as_json=as_json)
    different = False

    async def body(control: Control) -> None:
        nonlocal different
        session_id = await resolve_session(control, session)
        events: list[Event] = []
        cursor = 0
        while True:
            page = await control.events_since(cursor, session_id=session_id, timeout=0.0, limit=PAGE)
            if not page.events:
                break
            events += page.events
            cursor = page.cursor
            if len(events) > MAX_EVENTS:
                raise SubletError(LocalCode.INVALID_ARGUMENT, f"the session has more than {MAX_EVENTS} events")
        from sublet.supervisor.replay import questions
        from sublet.supervisor.replay import replay as replayed

        steps = replayed(events, {one.seq: await _answer(control, one) for one in questions(events)})
        different = any(one.result == "different" for one in steps)
        if as_json:
            screen.emit({"session": session_id, "steps": [asdict(one) for one in steps]})
            return
        for one in steps:
            told = [str(one.seq), str(one.kind), one.result.replace("_", " ")]
            if one.note:
                told[-1] += f": {one.note}"
            elif one.result == "different":
                told[-1] += f": {one.recorded} became {one.replayed}"
            if one.out_of_order:
                told.append("(out of order)")
            screen.show(clean_line("  ".join(told), 1_000))
        if not steps:
            screen.show("No decisions are recorded.")

    run(ctx, screen, body)
    if different:
        raise typer.Exit(Exit.ERROR)


async def _answer(control: Control, question: Question) -> Answer:
    """Ask policy, as it is now, what it was asked then."""
    from sublet.daemon.api.policy_models import ExplainRequest
    from sublet.supervisor.replay import Answer

    found = await control.policy.explain(
        ExplainRequest.model_validate(
            {
                "subject": question.subject,
                "role": question.role,
                "action": question.action,
                "resource": question.resource,
                "attributes": dict(question.attributes),
                "at": question.at,
                "granted": question.granted,
            }
        )
    )
    return Answer(found.decision, found.layer, found.rule, found.hidden)
