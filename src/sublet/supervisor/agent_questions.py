"""Questions that an agent at work has for a person: put when its turn ends, answered by its next prompt (DESIGN 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from sublet.protocol.canonical import JsonValue
from sublet.protocol.text import clean, clean_line
from sublet.supervisor.job import Job
from sublet.supervisor.router.route import MAX_OPTIONS
from sublet.supervisor.tool_gate import ToolCall
from sublet.supervisor.tools import ASK_HUMAN, ToolAnswer, ToolOffer

MAX_QUESTION_CHARS: Final = 4_000
MAX_OPTION_CHARS: Final = 200
_PARAMETERS: Final[Mapping[str, JsonValue]] = {
    "type": "object",
    "properties": {
        "question": {"type": "string", "minLength": 1, "maxLength": MAX_QUESTION_CHARS},
        "options": {
            "type": "array",
            "maxItems": MAX_OPTIONS,
            "items": {"type": "string", "minLength": 1, "maxLength": MAX_OPTION_CHARS},
            "description": "Answers to choose between, where there are such.",
        },
    },
    "required": ["question"],
    "additionalProperties": False,
}
_OFFER: Final = ToolOffer(
    ASK_HUMAN,
    "Ask those for whom you work, where you can't go on without. What comes back is the answer, or says when it comes: "
    "call again with the same question to wait for it, or end your turn where the answer is your next prompt.",
    _PARAMETERS,
)


@dataclass(slots=True)
class AgentQuestion:
    """What an agent has asked in one run; empty where it has not."""

    question: str = ""
    options: tuple[str, ...] = ()


class LeaseQuestions(Protocol):
    """Asks the side that lends, while a job works in its lease."""

    async def ask(self, job_id: str, question: str, options: Sequence[str]) -> str | None:
        """Return what to tell the agent: the answer, or that there is none yet; None for a job without a delegator.

        The same question again goes on waiting.
        """


class AgentQuestions:
    """Implements ``ToolSource``: the tool ``sublet.ask_human``.

    Args:
        may: tells whether policy could let an agent call a tool; of others it is not told.
        delegators: asks those who lend; None where nobody does.
    """

    def __init__(self, may: Callable[[str, str], bool], delegators: LeaseQuestions | None = None) -> None:
        self._may = may
        self._delegators = delegators
        self._open: dict[str, AgentQuestion] = {}

    @contextmanager
    def collected(self, job_id: str) -> Iterator[AgentQuestion]:
        """Take the question of a run, by its job, while the block runs."""
        asked = self._open[job_id] = AgentQuestion()
        try:
            yield asked
        finally:
            del self._open[job_id]

    def offers(self, agent_id: str) -> Sequence[ToolOffer]:
        """``ToolSource.offers``."""
        return [_OFFER] if self._may(agent_id, ASK_HUMAN) else []

    async def call(self, call: ToolCall, job: Job, agent_id: str) -> ToolAnswer:
        """``ToolSource.call``."""
        given = call.arguments.get("options")
        question = clean(str(call.arguments.get("question", "")), MAX_QUESTION_CHARS)
        options = tuple(clean_line(str(one), MAX_OPTION_CHARS) for one in (given if isinstance(given, list) else []))
        asked = self._open.get(job.delegation_id)
        if asked is None:
            told = None
            if self._delegators is not None:
                told = await self._delegators.ask(job.delegation_id, question, options)
            if told is not None:
                return ToolAnswer(told)
            why = "nobody can be asked in this task; say in your answer what you would have to know"
            return ToolAnswer(why, why)
        asked.question, asked.options = question, options
        return ToolAnswer("It is asked as soon as you end your turn. End it now; the answer is your next prompt.")
