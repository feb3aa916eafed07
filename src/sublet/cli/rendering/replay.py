"""How a replay looks in a terminal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from rich.text import Text

from sublet.cli.rendering.words import whole_line

if TYPE_CHECKING:
    from sublet.daemon.api.replays import ReplayStep, ReplayView
    from sublet.protocol.canonical import JsonValue

_WORDS: Final = {
    "equal": ("same", "green"),
    "different": ("different", "red"),
    "not_replayable": ("cannot be replayed", "yellow"),
    "unknown": ("not known", "yellow"),
}


def step_lines(step: ReplayStep) -> list[Text]:
    """Return what was decided, whether it is decided so again, and where not, how."""
    word, style = _WORDS[step.result]
    line = Text.assemble((f"{step.seq:>6}", "dim"), f"  {whole_line(step.kind):<18}  ", (f"{word:<18}", style))
    line.append("  " + whole_line(_facts(step.recorded)))
    notes = [step.note] if step.note else []
    if step.out_of_order:
        notes.append("it stood out of order")
    if step.copies:
        notes.append(f"it stood there {step.copies + 1} times")
    if step.missing is not None:
        notes.append(f"event {step.missing}, which it follows from, is missing")
    if notes:
        line.append(f"  ({whole_line('; '.join(notes))})", style="dim")
    lines = [line]
    if step.result == "different":
        lines.append(Text(f"{'':>28}now:              {whole_line(_facts(step.replayed))}", style="red"))
    return lines


def summary(found: ReplayView) -> Text:
    """Return how many steps came out how."""
    if not found.steps:
        return Text("No decisions are recorded.")
    counts = Counter(str(one.result) for one in found.steps)
    told = ", ".join(f"{counts[name]} {word}" for name, (word, _) in _WORDS.items() if counts[name])
    by = "by the rules of now" if found.rules == "current" else "by the rules of then"
    return Text(f"{len(found.steps)} decisions, {by}: {told}", style="bold")


def _facts(facts: dict[str, JsonValue] | None) -> str:
    """Return what is compared, without names where the values tell by themselves."""
    if not facts:
        return "-"
    shown = dict(facts)
    first = [str(shown.pop(name)) for name in ("decision", "target", "class", "code") if shown.get(name)]
    rest = [f"{name} {value}" for name, value in shown.items() if value not in (None, "", [])]
    return "  ".join([*first, *rest]) or "-"
