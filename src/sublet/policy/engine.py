"""``decide()``: the one place that says yes or no (DESIGN 2, 7).

Rules:

- Nothing is allowed that no rule allows, and a deny of any layer stands.
- A decision sees one set of rules from its beginning to its end; a file that is bad changes nothing.
- Where a path is lent, links are followed before any rule sees it.

Weak: a decision is of the moment at which it was asked for. Whoever acts on it later asks again
(``docs/invariants.md``).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sublet.policy.config import PolicyConfig, load
from sublet.policy.decider import decide_by_rules
from sublet.policy.decision import Action, Decision, Kind, Resource, Subject
from sublet.policy.defaults import DEFAULT_RULES
from sublet.policy.globs import matcher
from sublet.policy.lending import Protected, decide_lending
from sublet.policy.limits import Limits
from sublet.policy.names import skeleton
from sublet.policy.paths import settled
from sublet.policy.rule_set import RuleSet
from sublet.policy.rules import Rule
from sublet.policy.table import RuleTable


@dataclass(frozen=True, slots=True)
class Prepared:
    """A policy that was read and found good, and is not in force yet."""

    config: PolicyConfig
    agent_rules: tuple[Rule, ...]
    rule_set: RuleSet


class Policy:
    """Rules in four layers, and the limits beside them.

    Layers, from low to high, are global, role (kind of subject, or role of an agent), agent (one subject by name) and
    request. Every deny stands. The highest layer that has an allow for this action and subject replaces the allows
    below it. What wants approval needs a grant whatever else allows it. The request layer only narrows; its one
    temporary allow is a grant that a person issued. What nothing allows is denied. docs/policy.md says it for people.

    Args:
        protected: directories that are never lent.
        config: rules and limits; the defaults where none is given.
        agent_rules: rules that ``agent.json`` makes (``policy.agent_rules``).
        clock: tells the time in Unix seconds, for rules that hold at times.
    """

    def __init__(
        self,
        protected: Protected,
        config: PolicyConfig | None = None,
        *,
        agent_rules: Sequence[Rule] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._protected = protected
        self._source: Path | None = None
        self._clock = clock
        self.use(_prepared(config or PolicyConfig(), agent_rules))

    @classmethod
    def load(cls, source: Path, protected: Protected, *, agent_rules: Sequence[Rule] = ()) -> Policy:
        """Return the policy that the file ``source`` holds; where there is none, the defaults.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` naming the place in the file.
        """
        policy = cls(protected, load(source), agent_rules=agent_rules)
        policy._source = source
        return policy

    @property
    def limits(self) -> Limits:
        """The limits that hold now."""
        return self._now.config.limits

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules that hold now: the built-in ones, those of the file, and those of ``agent.json``."""
        return (*DEFAULT_RULES, *self._now.config.rules, *self._now.agent_rules)

    @property
    def rule_set(self) -> RuleSet:
        """The rules and limits that hold now, as one thing that other rules never become."""
        return self._now.rule_set

    def now(self) -> float:
        """Return the time by which rules hold or do not, in Unix seconds."""
        return self._clock()

    @property
    def tests(self) -> int:
        """How many tests the file carries."""
        return len(self._now.config.tests)

    @property
    def source(self) -> Path | None:
        """The file, or where it would be."""
        return self._source

    def prepare(self, agent_rules: Sequence[Rule]) -> Prepared:
        """Read the file again, without putting anything in force. Blocks: call it in a thread.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` naming the place in the file.
        """
        prepared = _prepared(self._now.config if self._source is None else load(self._source), agent_rules)
        # Written down with the first decision; made here, where it keeps nobody waiting.
        _ = prepared.rule_set.document
        return prepared

    def use(self, prepared: Prepared) -> None:
        """Put ``prepared`` in force, all at once."""
        self._now = prepared

    def reload(self) -> None:
        """Read the file again. A bad one changes nothing: what held before goes on to hold.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` naming the place in the file.
        """
        self.use(self.prepare(self._now.agent_rules))

    def hidden_from_anyone(self, kinds: frozenset[Kind], actions: frozenset[Action], name: str) -> bool:
        """Tell whether a rule hides ``name`` from anybody of ``kinds``, for whatever is told to all of them alike."""
        return any(
            rule.hide
            and rule.kinds & kinds
            and rule.actions & actions
            and matcher(skeleton(rule.resource))(skeleton(name))
            for rule in self.rules
        )

    def never(self, subject: Subject, action: Action, resource: Resource) -> Decision | None:
        """Return the denial that stands whatever ``resource`` is called with and whoever grants it, or None."""
        always = [rule for rule in self.rules if rule.effect == "deny" and not rule.when and rule.times is None]
        asked = Resource(resource.name)
        found = decide_by_rules(
            RuleTable(always), self._now.config.limits, subject, action, asked, granted=True, now=self._clock()
        )
        return None if found.allowed else found

    def decide(
        self,
        subject: Subject,
        action: Action,
        resource: Resource,
        request: Sequence[Rule] = (),
        *,
        granted: bool = False,
        at: float | None = None,
    ) -> Decision:
        """Decide whether ``subject`` may do ``action`` to ``resource``.

        Args:
            subject: who asks, authenticated.
            action: what is asked for.
            resource: what it is done to; for ``WORKSPACE_LEND`` with the attribute ``path``, which is looked up on the
                disk: links are followed before any rule sees it.
            request: rules of the request layer: its denies stand, its allows narrow what the layers below allow.
            granted: whether a person's grant for exactly this call is at hand. It does what an approval wants, and
                allows what no rule speaks of; no deny and no limit gives way to it.
            at: the time in Unix seconds, where it is not now.
        """
        now = self._now
        if action is Action.WORKSPACE_LEND:
            resource = settled(action, resource)
        decision = decide_by_rules(
            now.rule_set.table,
            now.config.limits,
            subject,
            action,
            resource,
            request,
            granted=granted,
            now=self._clock() if at is None else at,
        )
        if decision.allowed and action is Action.WORKSPACE_LEND:
            lending = decide_lending(subject, resource.name, self._protected)
            return decision if lending.allowed else lending
        return decision


def _prepared(config: PolicyConfig, agent_rules: Sequence[Rule]) -> Prepared:
    added = (*config.rules, *agent_rules)
    rules = RuleSet((*DEFAULT_RULES, *added), config.limits, RuleTable(added, over=_default_table()))
    return Prepared(config, tuple(agent_rules), rules)


@functools.cache
def _default_table() -> RuleTable:
    return RuleTable(DEFAULT_RULES)
