"""Talking as tools of an agent at work: with the side that lends, in the room of its delegation and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sublet.daemon.rooms.work_talk import WorkTalk
from sublet.protocol.canonical import JsonValue
from sublet.protocol.text import clean, clean_line
from sublet.supervisor.job import Job
from sublet.supervisor.tool_gate import ToolCall
from sublet.supervisor.tools import SEND_MESSAGE, WATCH, ToolAnswer, ToolOffer

WAIT_SECONDS: Final = 40
MAX_MESSAGE_CHARS: Final = 16_000
MAX_SHOWN_CHARS: Final = 4_000
MAX_SHOWN: Final = 20
_PARAMETERS: Final[Mapping[str, Mapping[str, JsonValue]]] = {
    SEND_MESSAGE: {
        "type": "object",
        "properties": {
            "message": {"type": "string", "minLength": 1, "maxLength": MAX_MESSAGE_CHARS},
            "reply_to": {"type": "string", "maxLength": 64, "description": "ref_id of the message that this answers."},
        },
        "required": ["message"],
        "additionalProperties": False,
    },
    WATCH: {
        "type": "object",
        "properties": {
            "cursor": {"type": "integer", "minimum": 0, "description": "cursor of the last answer."},
            "wait_seconds": {"type": "integer", "minimum": 0, "maximum": WAIT_SECONDS},
        },
        "additionalProperties": False,
    },
}
_DESCRIPTIONS: Final[Mapping[str, str]] = {
    SEND_MESSAGE: "Say something to those for whom you work, and go on; watch tells what they answer.",
    WATCH: "What was said in the conversation with those for whom you work after cursor; waits for it for up to "
    "wait_seconds.",
}
_NOTICE: Final = "What others wrote follows, each under its author's name.\n"


class WorkTools:
    """Implements ``ToolSource``.

    Args:
        talk: has the rooms.
        may: tells whether policy could let an agent call a tool; of others it is not told.
    """

    def __init__(self, talk: WorkTalk, may: Callable[[str, str], bool]) -> None:
        self._talk = talk
        self._may = may

    def offers(self, agent_id: str) -> Sequence[ToolOffer]:
        """``ToolSource.offers``."""
        return [
            ToolOffer(tool, _DESCRIPTIONS[tool], parameters)
            for tool, parameters in _PARAMETERS.items()
            if self._may(agent_id, tool)
        ]

    async def call(self, call: ToolCall, job: Job, agent_id: str) -> ToolAnswer:
        """``ToolSource.call``.

        Raises:
            SubletError: ``NOT_FOUND`` where there is no room.
        """
        work = self._talk.work(job.delegation_id)
        if work is None or work.agent != agent_id:
            why = "there is nobody to talk with in this task"
            return ToolAnswer(why, why)
        if call.tool == SEND_MESSAGE:
            reply_to = call.arguments.get("reply_to")
            ext = {"reply_to": reply_to} if reply_to is not None else None
            sent = await self._talk.say(work, str(call.arguments["message"]), ext)
            return ToolAnswer(json.dumps({"ref_id": sent["ref_id"], "room_id": sent["room_id"]}))
        cursor, wait = call.arguments.get("cursor", 0), call.arguments.get("wait_seconds", 0)
        since = cursor if isinstance(cursor, int) else 0
        seconds = min(wait if isinstance(wait, int) else 0, WAIT_SECONDS)
        refs, since = await self._talk.heard(work, since, seconds)
        shown = [_message(ref) for ref in refs[-MAX_SHOWN:]]
        return ToolAnswer(_NOTICE + json.dumps({"messages": shown, "cursor": since}, ensure_ascii=False))


def _message(ref: Mapping[str, Any]) -> dict[str, JsonValue]:
    return {
        "ref_id": clean_line(str(ref["ref_id"]), 64),
        "author": clean_line(str(ref["author"]), 320),
        "text": clean(str(ref.get("body") or ""), MAX_SHOWN_CHARS),
    }
