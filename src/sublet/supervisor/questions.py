"""The question that a session waits for a person to answer: kept with the session, so that it outlives a restart."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, ValidationError

from sublet.protocol.errors import LocalCode, SubletError
from sublet.supervisor.router.route import MAX_OPTIONS, Name, RouterPart, Words
from sublet.supervisor.router.rules import MAX_ROUNDS
from sublet.supervisor.sessions.session_parts import MainSession

PENDING: Final = "pendingQuestion"
"""Where the session's metadata has it."""
MAX_ASKED_CHARS: Final = 200_000


class PendingQuestion(RouterPart):
    """A question, the request that it is about, and between whom to choose.

    ``expires_at`` is Unix time in seconds; ``round`` counts the questions about this request. ``agent`` is who asks and
    gets the answer; empty where the supervisor does.
    """

    request_id: Name
    question: str
    options: Annotated[tuple[Name, ...], Field(max_length=MAX_OPTIONS)] = ()
    text: Annotated[str, Field(max_length=MAX_ASKED_CHARS)]
    expires_at: float
    round: Annotated[int, Field(ge=1, le=MAX_ROUNDS)] = 1
    agent: Words = ""


def pending(session: MainSession, now: float) -> PendingQuestion | None:
    """Return the question that ``session`` waits with, or None where there is none or its time is over."""
    kept = session.metadata.get(PENDING)
    if kept is None:
        return None
    try:
        found = PendingQuestion.model_validate(kept)
    except ValidationError:
        return None
    return found if now < found.expires_at else None


def no_question(session_id: str) -> SubletError:
    """Return the error of an answer that nobody has asked for."""
    return SubletError(
        LocalCode.CONFLICT,
        f"session {session_id} waits for no answer",
        "The time for it may be over. Ask anew: sublet ask --session ID TEXT",
    )
