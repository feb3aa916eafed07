"""Asks policy before an operation, and writes down what it said: every service has one of these (DESIGN 2, 7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar, TypeVarTuple

from sublet import deadlines
from sublet.daemon.operations.asking import note_decision
from sublet.daemon.storage.journal import Journal
from sublet.daemon.tasks.background import in_background
from sublet.policy.attributes import ARGUMENT_PREFIX
from sublet.policy.decision import Action, Decision, Kind, Resource, Subject, Value
from sublet.policy.effects import only_looks
from sublet.policy.engine import Policy
from sublet.policy.path_denies import PathDenies, path_denies
from sublet.policy.recorded import DECIDED, Record
from sublet.policy.request_rules import NOT_NARROWED, Narrowing
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKeys, EventKind
from sublet.protocol.text import clean_line

LOOK_SECONDS = 10.0
"""How long a question to the disk may take."""
MAX_JOURNALLED_CHARS = 500
MAX_AUDITED_VALUES = 32
_MAX_SAFE_INTEGER = 2**53 - 1

_STRANGERS: Final[frozenset[Kind]] = frozenset({"peer", "a2a", "node"})
_WANTS_AN_AGENT: Final = frozenset({Action.AGENT_MESSAGE, Action.ASSIGNMENT_ACCEPT})

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


class DecisionLog(Protocol):
    """Where decisions are written down: the audit log."""

    def add(self, kind: str, fields: Mapping[str, JsonValue]) -> int:
        """Append an entry and return its number, without waiting for the disk."""

    async def add_durably(self, kind: str, fields: Mapping[str, JsonValue]) -> int:
        """Append an entry and return its number once it is durable."""


class Gatekeeper:
    """Stands before the operations of this daemon.

    Args:
        policy: decides.
        journal: is told what was refused.
        lend_roots: directories that a person has allowed to lend, beside a caller's own roots.
        audit: is told every decision; of one that lets something change, before it can.
    """

    def __init__(
        self, policy: Policy, journal: Journal, lend_roots: Callable[[], Sequence[str]], audit: DecisionLog
    ) -> None:
        self._policy = policy
        self._journal = journal
        self._lend_roots = lend_roots
        self._audit = audit

    async def ask(
        self,
        caller: Subject,
        action: Action,
        name: str,
        *,
        keys: EventKeys | None = None,
        **attributes: str | int | bool,
    ) -> Record:
        """Return if ``caller`` may do ``action`` to ``name``: ``ask_for``, where names are no secret."""
        return await self.ask_for(caller, action, Resource(name, attributes), unknown_name(name), keys=keys)

    async def ask_for(
        self,
        caller: Subject,
        action: Action,
        resource: Resource,
        unknown: SubletError,
        *,
        keys: EventKeys | None = None,
        granted: bool = False,
        note: Mapping[str, JsonValue] | None = None,
    ) -> Record:
        """Return if ``caller`` may do ``action`` to ``resource``, with what that was decided from.

        Args:
            caller: who asks, authenticated.
            action: what is asked for.
            resource: what it is done to.
            unknown: what is said of a name that does not exist, and where a rule hides what it denies.
            keys: of the run for which it is asked, which the event of a refusal has then, with all that a replay needs.
            granted: as of ``decide_on_record``.
            note: as of ``decide_on_record``.

        Raises:
            SubletError: ``POLICY_DENIED``, or ``unknown``; ``UNAVAILABLE`` where the disk does not answer, or takes no
                audit entry.
        """
        record = await self.decide_on_record(caller, action, resource, granted=granted, note=note)
        decision = record.decision
        if decision.allowed:
            return record
        await self._journal.events.append_event(
            EventKind.POLICY_REJECTED,
            None,
            {
                "subject": who(caller),
                "action": str(action),
                "resource": clean_line(resource.name, MAX_JOURNALLED_CHARS),
                "layer": decision.layer,
                "rule": decision.rule,
                "reason": decision.reason,
                "code": str(unknown.code if decision.hidden else LocalCode.POLICY_DENIED),
                **({DECIDED: record.data()} if keys is not None else {}),
            },
            keys=keys,
            keeps=record.documents if keys is not None else (),
        )
        if decision.hidden:
            raise unknown
        raise SubletError(LocalCode.POLICY_DENIED, decision.reason, decision.hint)

    async def decide(
        self,
        caller: Subject,
        action: Action,
        resource: Resource,
        request: Narrowing = NOT_NARROWED,
        *,
        granted: bool = False,
        note: Mapping[str, JsonValue] | None = None,
    ) -> Decision:
        """Return what policy says: as ``decide_on_record``."""
        return (await self.decide_on_record(caller, action, resource, request, granted=granted, note=note)).decision

    async def decide_on_record(
        self,
        caller: Subject,
        action: Action,
        resource: Resource,
        request: Narrowing = NOT_NARROWED,
        *,
        granted: bool = False,
        note: Mapping[str, JsonValue] | None = None,
    ) -> Record:
        """Return what policy says and what that was decided from, once it is written down.

        The caller acts on it, and tells of a refusal by itself.

        Args:
            caller: who asks, authenticated.
            action: what is asked for.
            resource: what it is done to.
            request: what the caller narrows itself.
            granted: whether a grant for exactly this call is at hand, as in ``Policy.decide``.
            note: what else the audit entry holds, such as the digest of the arguments, or which grant it was.

        Raises:
            SubletError: ``UNAVAILABLE`` where the disk does not answer, or takes no audit entry.
        """
        rules, at = self._policy.rule_set, self._policy.now()
        if action is Action.WORKSPACE_LEND:
            caller = Subject(caller.kind, caller.name, (*caller.roots, *self._lend_roots()), caller.role)
            # The only decision that looks at the disk.
            decision = await looked_up(self._policy.decide, caller, action, resource, request.rules)
        else:
            decision = self._policy.decide(caller, action, resource, request.rules, granted=granted, at=at)
        record = Record(rules, caller, action, resource, granted, at, decision, request)
        looks = only_looks(action, resource)
        if looks and decision.allowed and not decision.record:
            note_decision(self, None)
            return record
        fields = {**_entry(record), **(note or {})}
        if decision.allowed and not looks:
            note_decision(self, await self._audit.add_durably("decision", fields))
        else:
            self._audit.add("decision", fields)
            note_decision(self, None)
        return record

    def hides(self, caller: Subject, action: Action, name: str) -> bool:
        """Tell whether ``caller`` must not see that ``name`` exists; lists leave it out. Nothing is written down."""
        return self._policy.decide(caller, action, Resource(name)).hidden

    def hides_any(self, caller: Subject, action: Action) -> bool:
        """Tell whether a rule hides anything of ``action`` from callers of this kind."""
        return any(rule.hide and caller.kind in rule.kinds and action in rule.actions for rule in self._policy.rules)

    def public(self, agent_id: str) -> bool:
        """Tell whether an agent may be named to everybody, as on the card: no rule hides it from any of them."""
        return not self._policy.hidden_from_anyone(_STRANGERS, _WANTS_AN_AGENT, agent_id)

    def never(self, caller: Subject, action: Action, name: str) -> Decision | None:
        """Return the denial of ``name`` that no grant and no other argument gets around. Nothing is written down."""
        return self._policy.never(caller, action, Resource(name))

    def path_denies(self, agent: Subject, known: Mapping[str, Value]) -> PathDenies:
        """Return what the rules of now deny ``agent`` by path; ``known`` are attributes of each of its calls."""
        return path_denies(self._policy.rules, agent, known, self._policy.now())

    def foresee(
        self,
        caller: Subject,
        action: Action,
        resource: Resource,
        request: Narrowing = NOT_NARROWED,
        *,
        granted: bool = False,
    ) -> Record:
        """Return what ``decide_on_record`` would; with ``granted`` whether a grant for exactly this would be enough.

        Nothing is written down: whoever then acts asks ``decide_on_record``.
        """
        rules, at = self._policy.rule_set, self._policy.now()
        decision = self._policy.decide(caller, action, resource, request.rules, granted=granted, at=at)
        return Record(rules, caller, action, resource, granted, at, decision, request)

    def outcome(self, decision: int, error: str | None) -> None:
        """Write down what became of what the entry ``decision`` allowed: it was done, or failed as ``error`` says."""
        fields: dict[str, JsonValue] = {"of": decision, "outcome": "done" if error is None else "failed"}
        if error is not None:
            fields["error"] = clean_line(error, MAX_JOURNALLED_CHARS)
        self._audit.add("outcome", fields)


def unknown_name(name: str) -> SubletError:
    """Return what is said of a name that does not exist, and of one that a rule hides."""
    return SubletError(LocalCode.NOT_FOUND, f"there is no {clean_line(name, 100)!r} here")


def who(caller: Subject) -> str:
    """Return ``caller`` for people."""
    return f"{caller.kind} {caller.name}".strip()


def _entry(record: Record) -> dict[str, JsonValue]:
    """Return what the audit log holds of a decision, which is enough to ask the same again (``explain --entry``).

    Arguments of tools may hold secrets and are not in it; which of them the rules compared is, in ``compared``.
    """
    caller, action, resource, decision = record.subject, record.action, record.resource, record.decision
    given = [name for name in resource.attributes if not name.startswith(ARGUMENT_PREFIX)]
    attributes = {clean_line(name, 100): _audited(resource.attributes[name]) for name in given[:MAX_AUDITED_VALUES]}
    found: dict[str, JsonValue] = {
        "subject": clean_line(who(caller), MAX_JOURNALLED_CHARS),
        "action": str(action),
        "resource": clean_line(resource.name, MAX_JOURNALLED_CHARS),
        "decision": decision.outcome,
        "layer": decision.layer,
        "rule": decision.rule,
    }
    if not decision.allowed:
        found["reason"] = clean_line(decision.reason, MAX_JOURNALLED_CHARS)
    if caller.role:
        found["role"] = clean_line(caller.role, 100)
    if attributes:
        found["attributes"] = attributes
    if record.granted:
        found["granted"] = True
    if record.narrowing:
        found["request"] = record.narrowing.data()
    if action is Action.WORKSPACE_LEND and caller.roots:
        found["roots"] = [clean_line(root, MAX_JOURNALLED_CHARS) for root in caller.roots[:MAX_AUDITED_VALUES]]
    compared = record.rules.compared_arguments(action, caller.kind) & resource.attributes.keys()
    if compared:
        found["compared"] = [clean_line(name, 100) for name in sorted(compared)[:MAX_AUDITED_VALUES]]
    whole = (
        resource.name == found["resource"]
        and f"{caller.kind} {caller.name}".rstrip() == found["subject"]
        and all(attributes.get(name) == _exactly(resource.attributes[name]) for name in given)
    )
    if not whole:
        found["shortened"] = True
    return found


def _exactly(value: Value) -> JsonValue:
    return list(value) if isinstance(value, tuple) else value


def _audited(value: Value) -> JsonValue:
    match value:
        case bool():
            return value
        case int():
            return value if abs(value) <= _MAX_SAFE_INTEGER else str(value)
        case str():
            return clean_line(value, MAX_JOURNALLED_CHARS)
        case _:
            return [clean_line(item, MAX_JOURNALLED_CHARS) for item in value[:MAX_AUDITED_VALUES]]


async def looked_up(look: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
    """Return what ``look`` finds out from the disk, in a thread and with a bound: a dead mount answers never.

    Raises:
        SubletError: ``UNAVAILABLE``, or what ``look`` raises.
    """
    try:
        async with deadlines.timeout(LOOK_SECONDS):
            return await in_background(look, *arguments)
    except TimeoutError:
        raise SubletError(
            LocalCode.UNAVAILABLE, "the disk does not answer for this directory", "Is it on a mount that is gone?"
        ) from None
