"""Gates without an audit log behind them: what they decided is kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.storage.journal import Journal
from sublet.policy.decision import Action, Resource, Subject
from sublet.policy.defaults import DEFAULT_RULES
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.policy.limits import Limits
from sublet.policy.recorded import Record
from sublet.policy.rule_set import RuleSet
from sublet.protocol.canonical import JsonValue


class KeptDecisions:
    """A ``DecisionLog`` in memory; ``durable`` are the numbers of the entries that were waited for."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, dict[str, JsonValue]]] = []
        self.durable: set[int] = set()

    def add(self, kind: str, fields: Mapping[str, JsonValue]) -> int:
        self.entries.append((kind, dict(fields)))
        return len(self.entries)

    async def add_durably(self, kind: str, fields: Mapping[str, JsonValue]) -> int:
        seq = self.add(kind, fields)
        self.durable.add(seq)
        return seq


def gatekeeper(journal: Journal, policy: Policy | None = None, log: KeptDecisions | None = None) -> Gatekeeper:
    """Return a gate for tests of what stands behind it."""
    return Gatekeeper(policy or Policy(Protected(Path("/nowhere"))), journal, list, log or KeptDecisions())


def a_record(caller: Subject, action: Action, resource: Resource) -> Record:
    """Return what the default rules decide, as a gate hands it on."""
    rules = RuleSet(DEFAULT_RULES, Limits())
    return Record(rules, caller, action, resource, False, 0.0, rules.decide(caller, action, resource, now=0.0))
