"""Questions that an agent at work has for a person: put when its turn ends, answered by its next prompt (DESIGN 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from sublet.protocol.canonical import JsonValue
from sublet.protocol.text import clean, clean_line
from sublet.supervisor.model import Job
from sublet.supervisor.router.model import MAX_OPTIONS
from sublet.supervisor.tools import ASK_HUMAN, ToolAnswer, ToolCall, ToolOffer

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
    "Ask the person for whom you work, where you can't go on without. Call it, then end your turn: the answer is your "
    "next prompt.",
    _PARAMETERS,
)


@dataclass(slots=True)
class Asked:
    """What an agent has asked in one run; empty where it has not."""

    question: str = ""
    options: tuple[str, ...] = ()


class AgentQuestions:
    """Implements ``ToolSource``: the tool ``sublet.ask_human``.

    Args:
        may: tells whether policy could let an agent call a tool; of others it is not told.
    """

    def __init__(self, may: Callable[[str, str], bool]) -> None:
        self._may = may
        self._open: dict[str, Asked] = {}

    @contextmanager
    def collected(self, job_id: str) -> Iterator[Asked]:
        """Take the question of a run, by its job, while the block runs."""
        asked = self._open[job_id] = Asked()
        try:
            yield asked
        finally:
            del self._open[job_id]

    def offers(self, agent_id: str) -> Sequence[ToolOffer]:
        """``ToolSource.offers``."""
        return [_OFFER] if self._may(agent_id, ASK_HUMAN) else []

    async def call(self, call: ToolCall, job: Job, agent_id: str) -> ToolAnswer:
        """``ToolSource.call``."""
        asked = self._open.get(job.delegation_id)
        if asked is None:
            why = "nobody can be asked in this task; say in your answer what you would have to know"
            return ToolAnswer(why, why)
        options = call.arguments.get("options")
        asked.question = clean(str(call.arguments.get("question", "")), MAX_QUESTION_CHARS)
        asked.options = tuple(
            clean_line(str(one), MAX_OPTION_CHARS) for one in (options if isinstance(options, list) else [])
        )
        return ToolAnswer("It is asked as soon as you end your turn. End it now; the answer is your next prompt.")
