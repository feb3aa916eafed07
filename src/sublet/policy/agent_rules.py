"""What ``agent.json`` says of tools, as rules of the agent layer (SuperAgent 6.1, 7.3).

The rules name one agent and nobody else, and are made anew whenever the file is read, so that an entry takes its
permissions with it when it goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from sublet.policy.decision import Action, Kind
from sublet.policy.globs import covers, defect
from sublet.policy.rules import Effect, Rule
from sublet.policy.tool_names import (
    FAMILIES,
    LOOKING_TOOLS,
    READING_TOOLS,
    WRITING_TOOLS,
    capability_pattern,
    tool_defect,
    tool_pattern,
)
from sublet.protocol.errors import LocalCode, SubletError

ApprovalMode = Literal["default", "autoEdit", "plan"]

_AGENT: Final[frozenset[Kind]] = frozenset({"agent"})
_CALL: Final = frozenset({Action.TOOL_CALL})
_CAPABILITY: Final = frozenset({Action.CAPABILITY_READ, Action.CAPABILITY_RUN})
_NO_CHANGE: Final = LOOKING_TOOLS | {"sublet.ask.human"}
"""What is known to change nothing. Of everything else, the unknown too, it is not known."""
_FILES: Final = READING_TOOLS | WRITING_TOOLS | _NO_CHANGE


@dataclass(frozen=True, slots=True)
class AgentTools:
    """What an entry of ``agent.json`` says of tools, by the names that it uses.

    ``whitelist``, ``blacklist`` and ``authorization_required`` are of ``tools``; ``allowed``, ``disallowed`` and
    ``approval_mode`` of ``governance``. Names are globs; a family alone (``network``) is all of its tools.
    """

    agent: str
    whitelist: Sequence[str] = ()
    blacklist: Sequence[str] = ()
    authorization_required: Sequence[str] = ()
    allowed: Sequence[str] = ()
    disallowed: Sequence[str] = ()
    approval_mode: ApprovalMode | None = None


def agent_rules(tools: AgentTools) -> tuple[Rule, ...]:
    """Return the rules.

    Raises:
        SubletError: ``INVALID_ARGUMENT``, naming the list and the entry, for one that could never do anything.
    """
    allows = [
        *_rules(tools, "tools.whitelist", "allow", tools.whitelist),
        *_rules(tools, "governance.allowedTools", "allow", tools.allowed),
    ]
    denies = [
        *_rules(tools, "tools.blacklist", "deny", tools.blacklist),
        *_rules(tools, "governance.disallowedTools", "deny", tools.disallowed),
    ]
    approvals = list(_rules(tools, "tools.authorizationRequired", "approval", tools.authorization_required))
    for rule in (*allows, *approvals):
        if denied := next((deny for deny in denies if _covers(deny, rule)), None):
            raise _bad(tools, rule, f"never matches, as {denied.id} denies all of it")
    for rule in approvals:
        if allows and not any(_covers(allow, rule) or _covers(rule, allow) for allow in allows):
            raise _bad(tools, rule, "is on no list of what this agent may call, so nobody could ever approve it")
    return (*denies, *approvals, *allows, *_mode(tools))


def _rules(tools: AgentTools, place: str, effect: Effect, names: Sequence[str]) -> Iterator[Rule]:
    for name in dict.fromkeys(name.strip() for name in names):
        family = name.casefold() in FAMILIES
        if why := defect(name) or ("" if family else tool_defect(name)):
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"agent {tools.agent}: {place}: {name!r} never matches: {why}",
                "Write names such as shell.exec or file.*",
            )
        for pattern in (name, f"{name}.*") if family else (name,):
            yield _rule(tools, f"{place}.{pattern}", effect, pattern, _CALL)
        if capability := capability_pattern(name, exact=effect == "allow"):
            yield _rule(tools, f"{place}.{name}.run", effect, capability, _CAPABILITY)


def _mode(tools: AgentTools) -> Iterator[Rule]:
    """Yield the rule of an approval mode: by what a tool does, and of an unknown tool nobody knows what it does."""
    place = f"governance.approvalMode.{tools.approval_mode}"
    if tools.approval_mode == "autoEdit":
        yield replace(_rule(tools, place, "approval", "*", _CALL), spares=_FILES)
    elif tools.approval_mode == "plan":
        yield replace(_rule(tools, place, "deny", "*", _CALL), spares=_NO_CHANGE)


def _rule(tools: AgentTools, place: str, effect: Effect, pattern: str, actions: frozenset[Action]) -> Rule:
    return Rule(
        id=f"agent.json.{tools.agent}.{place}",
        effect=effect,
        layer="agent",
        kinds=_AGENT,
        actions=actions,
        name=tools.agent,
        resource=pattern,
    )


def _covers(wide: Rule, narrow: Rule) -> bool:
    return wide.actions == narrow.actions and covers(
        tool_pattern(wide.resource, exact=False), tool_pattern(narrow.resource, exact=False)
    )


def _bad(tools: AgentTools, rule: Rule, why: str) -> SubletError:
    place = rule.id.removeprefix(f"agent.json.{tools.agent}.")
    return SubletError(
        LocalCode.INVALID_ARGUMENT, f"agent {tools.agent}: {place} {why}", "Mend the lists in agent.json."
    )
