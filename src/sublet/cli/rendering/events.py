"""How events look in a terminal: one line each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from rich.text import Text

from sublet.cli.rendering.delegations import local_time
from sublet.cli.rendering.words import whole_line
from sublet.protocol.events import EventKind
from sublet.protocol.text import clean_line

if TYPE_CHECKING:
    from sublet.protocol.canonical import JsonValue
    from sublet.protocol.events import Event

MAX_VALUE_CHARS: Final = 120
MAX_LINE_CHARS: Final = 600
_BAD: Final = frozenset({EventKind.POLICY_REJECTED, EventKind.GUARDRAIL_FAILED, EventKind.TOOL_ERROR})
_WAITS: Final = frozenset({EventKind.ASK_HUMAN, EventKind.APPROVAL_REQUIRED})
# What a decision was made from is as long as all else together, and kept for replay; the others say nothing to people.
# ``--json`` has them all.
_NOT_SHOWN: Final = frozenset(
    {
        *("request", "classified", "asker", "answer", "decided"),
        *("schema", "mask", "kept", "guardrail"),
        *("delegationId", "callId", "digest", "capabilitySnapshotVersion"),
    }
)
_ID_CHARS: Final = 12


def event_line(event: Event, *, cuts: bool) -> Text:
    """Return number, time, kind, whose it is, and what there is to say of it; ids and values whole unless ``cuts``."""
    style = "red" if event.kind in _BAD else "yellow" if event.kind in _WAITS else "cyan"
    keys = event.keys
    line = Text.assemble(
        (f"{event.seq:>6}", "dim"), "  ", local_time(event.at), "  ", (f"{event.kind:<20}", style), "  "
    )
    ids = (keys.finger_session_id, event.delegation_id)
    whose = [*(one[:_ID_CHARS] if cuts else one for one in ids if one), keys.agent_id]
    line.append(whole_line(" ".join(part for part in whose if part) or "-"))
    if keys.causation_id is not None:
        line.append(f"  (after {keys.causation_id})", style="dim")
    data = {name: value for name, value in event.data.items() if name not in _NOT_SHOWN}
    told = "  ".join(f"{name} {_value(value, cuts)}" for name, value in data.items() if value not in (None, "", [], {}))
    if told:
        line.append("  " + (clean_line(told, MAX_LINE_CHARS) if cuts else whole_line(told)))
    return line


def _value(value: JsonValue, cuts: bool) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return (clean_line(text, MAX_VALUE_CHARS) if cuts else whole_line(text)) or "-"
