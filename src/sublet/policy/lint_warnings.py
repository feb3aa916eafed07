"""Tells of rules that hold less than they seem to: a program gets around them, or whom they name says its own name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sublet.policy.commands import COMMAND_LINES
from sublet.policy.decision import Action
from sublet.policy.globs import covers
from sublet.policy.names import skeleton
from sublet.policy.path_denies import CHANGES, READS, is_path_deny, speaks_of
from sublet.policy.paths import PATH
from sublet.policy.rules import Rule
from sublet.policy.tool_names import READING_TOOLS, WRITING_TOOLS

SHELL: Final = "shell.exec"
MOUNTED: Final = "workspace"
_FILES: Final = READING_TOOLS | WRITING_TOOLS
_KNOWN: Final = frozenset({PATH, "access_mode", "delegation_id", "peer"})
"""What is known of all calls of a run before its program starts, so that its sandbox can hold to it."""


def lint_warnings(rules: Mapping[str, Rule]) -> list[str]:
    """Return what holds less than it seems to, keyed as ``lint``; each warning begins with a place.

    Args:
        rules: all that hold, in the order in which they count.
    """
    found = []
    for place, rule in rules.items():
        if why := _around(rule, rules) or _self_declared(rule) or _mounted(rule):
            found.append(f"{place}: {why}")
    return found


def _around(rule: Rule, rules: Mapping[str, Rule]) -> str:
    """Return how a program gets around what ``rule`` keeps from an agent, or nothing."""
    if rule.effect == "allow" or Action.TOOL_CALL not in rule.actions or "agent" not in rule.kinds:
        return ""
    if not _may_run_programs(rule, rules):
        return ""
    if speaks_of(rule, SHELL):
        if any(name in COMMAND_LINES for name in rule.when):
            return "another spelling of the command gets around it; allow the commands that are meant instead"
        if is_path_deny(rule):
            return f"a call of {SHELL} names no path, so all of them are denied; write file.* where files are meant"
        return ""
    files = {tool for tool in _FILES if speaks_of(rule, tool)}
    if not files:
        return ""
    if rule.effect == "approval":
        return (
            f"an agent that may call {SHELL} does the same by a program, and nobody is asked; ask for {SHELL} as well"
        )
    if not is_path_deny(rule):
        return f"an agent that may call {SHELL} does the same by a program; deny {SHELL} as well, or name a path"
    if rule.when.keys() - _KNOWN:
        return f"an agent that may call {SHELL} gets around it, as only a path holds against programs"
    if READS not in files and not files & set(CHANGES):
        return f"an agent that may call {SHELL} gets around it; deny file.write at the path, and it is read-only there"
    return ""


def _may_run_programs(rule: Rule, rules: Mapping[str, Rule]) -> bool:
    """Tell whether some agent of whom ``rule`` speaks may call the shell."""
    return not any(
        other.effect == "deny"
        and not other.when
        and other.times is None
        and Action.TOOL_CALL in other.actions
        and "agent" in other.kinds
        and speaks_of(other, SHELL)
        and covers(skeleton(other.name), skeleton(rule.name))
        and covers(skeleton(other.role), skeleton(rule.role))
        for other in rules.values()
    )


def _self_declared(rule: Rule) -> str:
    if rule.kinds == {"mcp"} and rule.name.strip("*"):
        return "an MCP host says its name itself, so this holds for whoever says it and for nobody who does not"
    return ""


def _mounted(rule: Rule) -> str:
    """Return that a path begins with the name under which the first lent directory is mounted, or nothing."""
    condition = rule.when.get(PATH)
    if condition is None or Action.TOOL_CALL not in rule.actions:
        return ""
    paths = [*(condition.values or ()), *(condition.scopes or ()), condition.glob]
    if any(isinstance(path, str) and path.partition("/")[0] == MOUNTED for path in paths):
        return (
            f"paths are relative to the lent directory, so {MOUNTED}/ is a directory in it; leave it out if it is not"
        )
    return ""
