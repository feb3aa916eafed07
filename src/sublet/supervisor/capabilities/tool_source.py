"""Capabilities as tools of an agent: only their first level is told; the rest is asked for when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sublet.policy.capabilities.disclosure import disclose
from sublet.policy.capabilities.module_file import TOOL_PREFIX, Level
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.supervisor.capabilities.registry import CapabilitySet
from sublet.supervisor.capabilities.runs import CapabilityRuns
from sublet.supervisor.job import Job
from sublet.supervisor.tool_gate import ToolCall
from sublet.supervisor.tools import ToolAnswer, ToolOffer

MAX_OFFERED: Final = 64
MAX_ANSWER_CHARS: Final = 32_000


class CapabilityTools:
    """Implements ``ToolSource``.

    Args:
        capabilities: returns what there is now.
        runs: runs them.
        chosen: returns the ids that an agent is told of; None for all, an empty tuple for none.
        may: tells whether an agent could be let to call a tool; of others it is told only where ``chosen`` names them.
    """

    def __init__(
        self,
        capabilities: Callable[[], CapabilitySet],
        runs: CapabilityRuns,
        chosen: Callable[[str], tuple[str, ...] | None],
        may: Callable[[str, str], bool],
    ) -> None:
        self._may = may
        self._capabilities = capabilities
        self._runs = runs
        self._chosen = chosen

    def offers(self, agent_id: str) -> Sequence[ToolOffer]:
        """``ToolSource.offers``."""
        chosen = self._chosen(agent_id)
        found = [
            one
            for one in self._capabilities().found.values()
            if one.module.enabled
            and (self._may(agent_id, one.module.tool) if chosen is None else one.module.id in chosen)
        ]
        return [
            ToolOffer(one.module.tool, disclose(one.module, one.documents, 1).text, _PARAMETERS)
            for one in found[:MAX_OFFERED]
        ]

    async def call(self, call: ToolCall, job: Job, agent_id: str) -> ToolAnswer:
        """``ToolSource.call``."""
        capability = self._capabilities().get(call.tool.removeprefix(TOOL_PREFIX))
        level, arguments = call.arguments.get("inspect"), call.arguments.get("args", [])
        if level in _LEVELS:
            return ToolAnswer(disclose(capability.module, capability.documents, _LEVELS[level]).text)
        if not isinstance(arguments, list) or not all(isinstance(item, str) for item in arguments):
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"{call.tool} takes args, a list of strings")
        ended = await self._runs.run(capability, [str(item) for item in arguments], job=job)
        text = "\n".join(part for part in (ended.stdout, ended.stderr) if part)[:MAX_ANSWER_CHARS]
        if ended.ok:
            return ToolAnswer(text)
        why = ended.reason or f"it ended with status {ended.exit_code}"
        return ToolAnswer(f"{why}\n{text}", why)


_LEVELS: Final[Mapping[JsonValue, Level]] = {2: 2, 3: 3}
_PARAMETERS: Final[Mapping[str, JsonValue]] = {
    "type": "object",
    "properties": {
        "args": {"type": "array", "items": {"type": "string"}, "description": "What it is called with."},
        "inspect": {"enum": [2, 3], "description": "Instead of a call: 2 tells how it is called, 3 its documents."},
    },
    "additionalProperties": False,
}
