"""Questions to policy that people ask, and rules as they are shown, with a daemon or without one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from sublet.daemon.api.policy import ExplainRequest, Explanation, PolicyView, RuleView, explanation
from sublet.daemon.config.daemon_config import DaemonConfig
from sublet.daemon.governing.agent_rules import rules_of
from sublet.policy.decision import Action, Subject
from sublet.policy.defaults import DEFAULT_RULES
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.policy.request_rules import narrowing
from sublet.policy.rule_tests import asked_resource
from sublet.policy.rules import KINDS, Condition, Rule
from sublet.policy.subjects import checked, subject_named
from sublet.policy.times import DAY_MINUTES, DAYS, Times
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_line
from sublet.supervisor.agent_config import DEFAULT_AGENT_FILE, load_agents

_BUILT_IN: Final = frozenset(rule.id for rule in DEFAULT_RULES)


def explained(
    policy: Policy,
    request: ExplainRequest,
    role_of: Callable[[str], str],
    lend_roots: tuple[str, ...] = (),
    recorded: bool = False,
) -> Explanation:
    """Return the answer. Blocks on the disk for a question about lending: call it in a thread.

    ``recorded`` is a question of a decision in the log.

    Raises:
        SubletError: ``INVALID_ARGUMENT``.
    """
    subject = subject_named(request.subject, request.role)
    if not recorded:
        checked(subject)
    if subject.kind == "agent" and not subject.role:
        subject = Subject("agent", subject.name, role=role_of(subject.name))
    try:
        action = Action(request.action.strip().lower())
    except ValueError:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"{clean_line(request.action, 80)!r} is no action",
            f"They are: {', '.join(sorted(Action))}. A tool is the resource of tool.call.",
        ) from None
    if not recorded:
        _check_narrowing(request, action)
    attributes = {name: tuple(v) if isinstance(v, list) else v for name, v in request.attributes.items()}
    decision = policy.decide(
        Subject(subject.kind, subject.name, lend_roots, subject.role),
        action,
        asked_resource(
            action, request.resource, attributes, cast("Mapping[str, JsonValue]", request.args), recorded=recorded
        ),
        narrowing(request.deny, request.only).rules,
        granted=request.granted,
        at=request.at.timestamp() if request.at else None,
    )
    named = f"{subject.kind}:{subject.name}" if subject.name else subject.kind
    return explanation(decision, named, subject.role, str(action), request.resource)


def _check_narrowing(request: ExplainRequest, action: Action) -> None:
    """Refuse names of tools in a question about something else.

    Raises:
        SubletError: ``INVALID_ARGUMENT``.
    """
    if action is not Action.TOOL_CALL and (request.deny or request.only):
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"a request narrows calls of tools, and {action} is none",
            "Leave --deny and --only out.",
        )


def asked_in(entry: Mapping[str, JsonValue], args: dict[str, JsonValue]) -> tuple[ExplainRequest, tuple[str, ...]]:
    """Return the question of a decision in the audit log, and the directories below which its caller could lend.

    Args:
        entry: of the log.
        args: the tool's arguments, which the log does not keep.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for an entry that can't be asked again.
    """
    number, attributes = entry.get("seq"), entry.get("attributes", {})
    kind, _, name = str(entry.get("subject", "")).partition(" ")
    if entry.get("kind") != "decision" or not isinstance(attributes, dict):
        raise SubletError(LocalCode.INVALID_ARGUMENT, f"entry {number} is no decision", "See: sublet audit log")
    compared = entry.get("compared", [])
    if entry.get("shortened") or "left_out" in entry:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"entry {number} does not hold the whole question", "Ask by its parts instead."
        )
    if compared and not args:
        names = ", ".join(map(str, compared)) if isinstance(compared, list) else ""
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"entry {number} was decided by {names}, which the log does not keep",
            "Give the arguments besides: --args JSON",
        )
    roots = entry.get("roots", [])
    request = ExplainRequest.model_validate(
        {
            "subject": f"{kind}:{name}",
            "action": entry.get("action"),
            "resource": entry.get("resource"),
            "role": entry.get("role", ""),
            "attributes": attributes,
            "args": args,
            "at": entry.get("at"),
            "granted": entry.get("granted", False),
            **(narrowed if isinstance(narrowed := entry.get("request"), dict) else {}),
        }
    )
    return request, tuple(map(str, roots)) if isinstance(roots, list) else ()


def shown(policy: Policy) -> PolicyView:
    """Return what holds, for people."""
    limits: dict[str, Any] = dataclasses.asdict(policy.limits)
    return PolicyView(
        source=str(policy.source or ""),
        rules=[_rule(rule) for rule in policy.rules],
        limits={name: list(v) if isinstance(v, tuple) else v for name, v in limits.items()},
        tests=policy.tests,
    )


def own_agent_rules(config: DaemonConfig) -> tuple[Rule, ...]:
    """Return the rules that the agents of a daemon with ``config`` bring.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a file that can't be loaded.
    """
    return rules_of(load_agents(config.agent_file or DEFAULT_AGENT_FILE))


def policy_of(config: DaemonConfig, source: Path | None = None) -> tuple[Policy, Callable[[str], str]]:
    """Return the policy that a daemon with ``config`` would have, and what tells an agent's role.

    Args:
        config: the configuration.
        source: a policy file in place of the configured one.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a file that can't be loaded.
    """
    agents = load_agents(config.agent_file or DEFAULT_AGENT_FILE)
    own = (Path(config.home.config_dir), Path(config.home.state_dir), Path(config.home.runtime_dir), config.mount_root)
    file = source or config.policy_file or Path(config.home.config_dir) / "policy.json"
    policy = Policy.load(file, Protected(Path.home(), own), agent_rules=rules_of(agents))
    roles = {agent.id: agent.role for agent in agents}
    return policy, lambda name: roles.get(name, "")


def _rule(rule: Rule) -> RuleView:
    origin = (
        "built-in" if rule.id in _BUILT_IN else "agent.json" if rule.id.startswith("agent.json.") else "policy.json"
    )
    conditions = [_condition(name, condition) for name, condition in rule.when.items()]
    if rule.times is not None:
        conditions.append(_times(rule.times))
    return RuleView(
        id=rule.id,
        origin=origin,  # type: ignore[arg-type]  # one of the three
        layer=rule.layer,
        effect=rule.effect,
        kinds=[kind for kind in KINDS if kind in rule.kinds],
        name=rule.name,
        role=rule.role,
        actions=["*"] if rule.actions == frozenset(Action) else sorted(rule.actions),
        resource=rule.resource,
        conditions=conditions,
        hide=rule.hide,
        record=rule.record,
        reason=rule.reason,
        hint=rule.hint,
    )


def _condition(name: str, condition: Condition) -> str:
    words = []
    if condition.values is not None:
        words.append("is " + " or ".join(_plain(value) for value in condition.values))
    if condition.glob is not None:
        words.append(f"like {condition.glob}")
    if condition.scopes is not None:
        words.append("within " + " or ".join(condition.scopes))
    if condition.minimum is not None:
        words.append(f"at least {condition.minimum}")
    if condition.maximum is not None:
        words.append(f"at most {condition.maximum}")
    return f"{name} {' and '.join(words)}"


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _times(times: Times) -> str:
    days = "every day" if len(times.days) == len(DAYS) else " ".join(DAYS[day] for day in sorted(times.days))
    start, end = (f"{minute // 60:02}:{minute % 60:02}" for minute in (times.start, min(times.end, DAY_MINUTES)))
    return f"{days} {start} to {end} {times.zone}"
