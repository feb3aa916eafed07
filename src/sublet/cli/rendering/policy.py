"""How rules, explanations and the audit log look in a terminal."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from sublet.cli.rendering.columns import inset
from sublet.cli.rendering.delegations import local_time
from sublet.cli.rendering.screen import indented
from sublet.cli.rendering.words import whole_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sublet.cli.rendering.screen import Symbols
    from sublet.daemon.api.policy import Explanation, PolicyView, RuleView
    from sublet.policy.rule_tests import TestResult
    from sublet.protocol.canonical import JsonValue

_STYLES = {"allow": "green", "approval": "yellow", "needs_grant": "yellow", "deny": "red"}


def policy_parts(view: PolicyView) -> list[RenderableType]:
    """Return all rules, layer by layer, and the limits; nothing of them is cut."""
    parts: list[RenderableType] = []
    for layer, rules in itertools.groupby(view.rules, key=lambda rule: rule.layer):
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for rule in rules:
            table.add_row(Text(rule.effect, style=_STYLES[rule.effect]), _told(rule))
        parts += [Text(f"{layer} layer", style="bold"), inset(table, 2)]
    parts.append(Text("limits", style="bold"))
    parts += [Text(f"  {line}") for line in _limits(view.limits)]
    source = whole_line(view.source)
    there = f"From {source}, which carries {view.tests} tests." if Path(view.source).exists() else f"No {source}."
    parts.append(Text(f"{there} What nothing allows is denied.", style="dim"))
    return parts


def explanation_parts(found: Explanation) -> list[RenderableType]:
    """Return an answer in words."""
    parts: list[RenderableType] = [
        Text.assemble(
            (found.decision.replace("_", " "), _STYLES[found.decision]),
            f"  {found.layer} layer, rule {whole_line(found.rule)}",
        ),
        indented(whole_line(found.reason)),
    ]
    if found.hint:
        parts.append(indented(whole_line(found.hint), style="dim"))
    if found.hidden:
        parts.append(indented("Whoever asks is told that there is no such thing.", style="dim"))
    return parts


def problem_lines(source: Path, problems: Sequence[str]) -> list[RenderableType]:
    """Return what is wrong with a file, one line each."""
    return [Text(f"{source}: {whole_line(problem)}") for problem in problems]


def warning_lines(warnings: Sequence[str]) -> list[RenderableType]:
    """Return which rules hold less than they say, one line each."""
    return [Text(f"warning: {whole_line(warning)}") for warning in warnings]


def result_lines(results: Sequence[TestResult], symbols: Symbols) -> list[RenderableType]:
    """Return what came of each test, and how many passed."""
    lines: list[RenderableType] = []
    for result in results:
        test = result.test
        name = f"{test.subject.kind} {test.subject.name}".strip()
        asked = whole_line(f"{test.place} {name} {test.action} {test.resource}")
        if result.passed:
            lines.append(Text.assemble((symbols.good, "green"), f" {asked}: {result.decision.outcome}"))
        else:
            lines.append(Text.assemble((symbols.bad, "red"), f" {asked}: {whole_line(result.problem)}"))
    if results:
        lines.append(Text(f"{sum(result.passed for result in results)} of {len(results)} tests passed"))
    return lines


def result_object(result: TestResult) -> dict[str, JsonValue]:
    """Return what came of a test, for scripts."""
    return {
        "test": result.test.place,
        "passed": result.passed,
        "problem": result.problem,
        "decision": result.decision.outcome,
        "layer": result.decision.layer,
        "rule": result.decision.rule,
    }


def entry_line(entry: Mapping[str, JsonValue]) -> RenderableType:
    """Return an entry of the audit log as one line."""

    def field(name: str) -> str:
        return whole_line(str(entry.get(name, "")))

    start = f"{field('seq'):>7}  {local_time(field('at'))}  "
    if entry.get("kind") == "decision":
        decision = field("decision")
        return Text.assemble(
            start,
            (f"{decision.replace('_', ' '):<12}", _STYLES.get(decision, "")),
            f"{field('subject')}  {field('action')}  {field('resource')}",
            (f"  by {field('layer')} {field('rule')}", "dim"),
        )
    if entry.get("kind") == "outcome":
        error = f": {field('error')}" if "error" in entry else ""
        return Text(f"{start}{field('outcome'):<12}entry {field('of')}{error}", style="dim")
    rest = {k: v for k, v in entry.items() if k not in ("seq", "at", "kind", "prev", "signature", "hash")}
    told = ", ".join(f"{name} {value}" for name, value in rest.items())
    return Text(f"{start}{field('kind'):<12}{whole_line(told)}", style="dim")


def _told(rule: RuleView) -> Text:
    """Return whom a rule speaks of, what it is about, and which it is."""
    to = "" if rule.resource == "*" else f" to {rule.resource}"
    lines = [whole_line(f"{_who(rule)}: {_what(rule)}{to}")]
    lines += [whole_line(f"when {condition}") for condition in rule.conditions]
    text = Text("\n".join(lines) + "\n")
    text.append(whole_line(f"{rule.id}, {rule.origin}"), style="dim")
    return text


def _limits(limits: Mapping[str, JsonValue], prefix: str = "") -> list[str]:
    """Return each limit as ``name  value``; one that bounds nothing is left out."""
    lines: list[str] = []
    for name, value in limits.items():
        if isinstance(value, dict):
            lines += _limits(value, f"{prefix}{name}.")
        elif value not in (None, []):
            told = (
                ", ".join(map(str, value))
                if isinstance(value, list)
                else f"{value:,}"
                if isinstance(value, int)
                else value
            )
            lines.append(f"{prefix}{name}  {whole_line(str(told))}")
    return lines


def denial_lines(entry: Mapping[str, JsonValue]) -> RenderableType:
    """Return a denial of the audit log, with its reason below it where it has one."""
    reason = whole_line(str(entry.get("reason", "")))
    return Group(entry_line(entry), *([inset(Text(reason, style="dim"), 9)] if reason else []))


def _who(rule: RuleView) -> str:
    kinds = "anybody" if len(rule.kinds) > 3 else " ".join(rule.kinds) or "nobody"
    name = "" if rule.name == "*" else f" {rule.name}"
    return kinds + name + ("" if rule.role == "*" else f" as {rule.role}")


def _what(rule: RuleView) -> str:
    if rule.actions == ["*"]:
        return "everything"
    families: dict[str, list[str]] = {}
    for action in rule.actions:
        families.setdefault(action.partition(".")[0], []).append(action.partition(".")[2])
    return ", ".join(
        f"{family}.{verbs[0]}" if len(verbs) == 1 else f"{family}.{{{', '.join(verbs)}}}"
        for family, verbs in families.items()
    )
