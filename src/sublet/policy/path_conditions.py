"""Conditions on paths: as they are loaded, and why one can never hold (DESIGN 7)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from sublet.policy.decision import Action
from sublet.policy.globs import components, defect, path_defect
from sublet.policy.paths import HOME, Language, expanded, language_of, led_to
from sublet.policy.rules import Condition


def settled_condition(condition: Condition) -> Condition:
    """Return a condition on a path of lending with ``~`` expanded and links followed. Looks at the disk."""

    def paths(given: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(found for path in given for found in led_to(expanded(path))))

    values, scopes, glob = condition.values, condition.scopes, condition.glob
    if values is not None:
        texts = paths(tuple(value for value in values if isinstance(value, str)))
        values = (*texts, *(value for value in values if not isinstance(value, str)))
    return replace(
        condition,
        values=values,
        scopes=None if scopes is None else paths(scopes),
        glob=None if glob is None else led_to(expanded(glob))[-1],
    )


def path_faults(condition: Condition, actions: Collection[Action]) -> Iterator[str]:
    """Yield why a part of a condition on the attribute ``path`` of ``actions`` can never hold."""
    languages = {language_of(action) for action in actions}
    if len(languages) > 1:
        relative, absolute = (min(a for a in actions if language_of(a) == one) for one in ("lent", "absolute"))
        yield (
            f"paths of {relative} are relative to the lent directory and those of {absolute} are absolute: "
            "write two rules"
        )
        return
    language = languages.pop()
    literals = [str(value) for value in condition.values or () if isinstance(value, str)]
    for path in (*literals, *(condition.scopes or ())):
        if components(path) is None or "*" in path or path != path.strip() or _unseen(path):
            yield f"{path!r} is no path: write whole components, without '..' and wildcards"
        elif why := _spoken(path, language):
            yield f"{path!r} never matches: {why}"
    if condition.glob is not None and (
        why := _spoken(condition.glob, language) or defect(condition.glob) or path_defect(condition.glob)
    ):
        yield f"never holds: {why}"


def _spoken(path: str, language: Language) -> str:
    """Return why a path is none of ``language``, or nothing."""
    if language == "lent":
        if path.startswith(("/", f"{HOME}/")) or path == HOME:
            return "a path of a tool is relative to the lent directory, such as src/a.py"
    elif not path.startswith("/"):
        return "a path of lending is absolute, or begins with ~/ for your own home"
    return ""


def _unseen(path: str) -> bool:
    return any(ord(char) < 0x20 or ord(char) == 0x7F for char in path)
