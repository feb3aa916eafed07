"""The tool ``shell.exec``: a shell line in the lease's directory, in the sandbox, bounded in time and output."""

from __future__ import annotations

import signal
from typing import Final

from sublet.policy.guardrail.schema import CheckedSchema
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import SubletError
from sublet.supervisor import tools
from sublet.supervisor.chat.tool import Arguments, Tool, ToolFailed, ToolResult, bounded, number_of, text_of
from sublet.supervisor.confined_runs import ConfinedRuns
from sublet.supervisor.guarded_process import Ended

DEFAULT_SECONDS: Final = 120
MAX_SECONDS: Final = 3_600
MAX_COMMAND_CHARS: Final = 32_000


def shell_tool(runs: ConfinedRuns) -> Tool:
    """Return the tool that runs what ``runs`` confines."""

    async def run(arguments: Arguments) -> ToolResult:
        seconds = number_of(arguments, "timeout_seconds", DEFAULT_SECONDS)
        try:
            ran = await runs.run(["sh", "-c", text_of(arguments, "command")], seconds)
        except SubletError as error:
            raise ToolFailed(error.message) from None
        except OSError as error:
            raise ToolFailed(f"the command can't be started: {error.strerror}") from None
        if ran.ended is not None and ran.ended.how == "start":
            raise ToolFailed(f"the command can't be started: {ran.ended.reason}")
        how = _how(ran.ended, seconds)
        sections = [text for text in (bounded(ran.stdout), bounded(ran.stderr)) if text.strip()]
        facts: dict[str, JsonValue] = {"ended": how}
        if ran.ended is not None and ran.ended.how == "exit":
            facts["exitCode"] = ran.ended.number
        return ToolResult("\n".join([f"[{how}]", *sections]), facts)

    parameters: dict[str, JsonValue] = {
        "type": "object",
        "properties": {
            "command": {"type": "string", "minLength": 1, "maxLength": MAX_COMMAND_CHARS, "pattern": "^[^\\u0000]*$"},
            "timeout_seconds": {"type": "integer", "minimum": 1, "maximum": MAX_SECONDS},
        },
        "required": ["command"],
        "additionalProperties": False,
    }
    return Tool(
        tools.SHELL_EXEC,
        f"Run a shell line (sh) in the first lent directory. It ends after {DEFAULT_SECONDS} s unless timeout_seconds "
        "says otherwise; nothing goes on in the background; it has no input.",
        CheckedSchema(parameters),
        run,
        shown=lambda arguments: text_of(arguments, "command"),
    )


def _how(ended: Ended | None, seconds: int) -> str:
    if ended is None:
        return f"ended after {seconds} s, when its time was over"
    if ended.how == "exit":
        return f"exit status {ended.number}"
    try:
        return f"ended by {signal.Signals(ended.number).name}"
    except ValueError:
        return f"ended by signal {ended.number}"
