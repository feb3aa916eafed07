"""Approvals and grants for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from sublet.cli.rendering.columns import Columns, Quoted
from sublet.cli.rendering.delegations import span
from sublet.cli.rendering.words import whole_line
from sublet.daemon.api.approvals import ApprovalView, GrantView, Terms
from sublet.protocol.canonical import JsonValue
from sublet.protocol.text import clean


def approval_table(found: Sequence[ApprovalView]) -> RenderableType:
    """Return one line per approval."""
    rows = [
        [
            Text(one.id),
            Text(one.state if one.state != "pending" or one.waits else "pending, nobody waits"),
            Text(span(one.remaining_seconds) if one.state == "pending" else ""),
            Text(one.agent),
            Text(whole_line(one.shown)),
        ]
        for one in found
    ]
    return Columns(["id", "state", "left", "agent", "call"], rows)


def approval_details(found: ApprovalView, *, complete: bool) -> list[RenderableType]:
    """Return the call as it is decided on; ``complete`` with all arguments, else with a word where some are missing."""
    about = found.context
    role = f"({about['role']})" if about.get("role") else ""
    facts = [
        ("approval", f"{found.id}  {found.state}"),
        ("agent", f"{found.agent} {role}".strip()),
        ("tool", found.tool),
        ("for", " ".join(str(about[key]) for key in ("peer", "delegationId") if about.get(key)) or found.scope),
        ("because", whole_line(_because(about))),
        ("sha256", found.digest),
    ]
    lines: list[RenderableType] = [Text(f"{name:>9}  {value}") for name, value in facts]
    arguments = found.arguments if complete and found.arguments is not None else found.shown
    lines.append(Quoted(clean(arguments, len(arguments) + 1), "  | "))
    if found.truncated and not (complete and found.arguments is not None):
        lines.append(Text(f"  CUT: this is not the whole call. See all of it: sublet approvals show {found.id}"))
    return lines


def _because(about: Mapping[str, JsonValue]) -> str:
    reason, rule = str(about.get("reason", "")), str(about.get("rule", ""))
    return reason if rule in reason else f"{reason} [{rule}]"


def grant_table(found: Sequence[GrantView]) -> RenderableType:
    """Return one line per grant; what is widened says so."""
    rows = [
        [
            Text(one.id),
            Text(one.state),
            Text(f"{one.remaining_uses}/{one.max_uses}"),
            Text(span(one.remaining_seconds) if one.state == "usable" else ""),
            Text(one.agent),
            Text(one.tool),
            Text(_for(one)),
            Text(", ".join(whole_line(outcome) for outcome in one.outcomes[-3:])),
        ]
        for one in found
    ]
    return Columns(["id", "state", "uses", "left", "agent", "tool", "for", "came of it"], rows)


def terms_words(terms: Terms) -> str:
    """Return for which calls, how often and how long, in words: what is signed, and what is said afterwards."""
    if not terms.any_arguments:
        what = "with exactly these arguments"
    elif terms.when:
        what = "with any arguments where " + " and ".join(f"{name} is like {glob}" for name, glob in terms.when.items())
    else:
        what = "with ANY arguments"
    times = "once" if terms.max_uses == 1 else f"{terms.max_uses} times"
    return f"{whole_line(what)}, {times}, within {span(terms.ttl_seconds)}"


def _for(grant: GrantView) -> str:
    if not grant.widened:
        return f"sha256 {grant.digest or ''}"
    if not grant.when:
        return "ANY arguments"
    return whole_line("ANY with " + ", ".join(f"{name}={glob}" for name, glob in grant.when.items()))
