"""A decision as events hold it, so that it can be made again: by the rules of then, or by those of now (DESIGN 7).

Of a call's arguments, only what the rules in force compare is recorded; that there were others is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError
from pydantic.alias_generators import to_camel

from sublet.policy.attributes import ARGUMENT_PREFIX
from sublet.policy.decision import Action, Decision, Kind, Resource, Subject, Value
from sublet.policy.request_rules import NOT_NARROWED, Narrowing
from sublet.policy.rule_set import RuleSet
from sublet.protocol.canonical import JsonValue
from sublet.protocol.documents import Document
from sublet.protocol.text import clean_line

DECIDED: Final = "decided"
"""Under which name the data of an event holds it."""
MAX_VALUE_CHARS: Final = 2_048
MAX_VALUES: Final = 64
MAX_ATTRIBUTES: Final = 64
_RESOURCE: Final = "resource"


@dataclass(frozen=True, slots=True)
class Record:
    """One decision with all that it was made from; ``at`` in Unix seconds."""

    rules: RuleSet
    subject: Subject
    action: Action
    resource: Resource
    granted: bool
    at: float
    decision: Decision
    narrowing: Narrowing = NOT_NARROWED

    @property
    def documents(self) -> tuple[Document, ...]:
        """What has to be kept so that the decision can be made again."""
        found = self.rules.document
        return () if found is None else (found,)

    def data(self) -> dict[str, JsonValue]:
        """Return it as an event holds it."""
        compared = self.rules.compared_arguments(self.action, self.subject.kind)
        attributes: dict[str, JsonValue] = {}
        missing: list[JsonValue] = [] if _keeps(self.resource.name) else [_RESOURCE]
        left_out = 0
        for name, value in self.resource.attributes.items():
            if name.startswith(ARGUMENT_PREFIX) and name not in compared:
                left_out += 1
            elif len(attributes) == MAX_ATTRIBUTES or not _keeps(name) or not _keeps(value):
                missing.append(clean_line(name, 100))
            else:
                attributes[name] = list(value) if isinstance(value, tuple) else value
        document = self.rules.document
        made = RecordedDecision(
            kind=self.subject.kind,
            name=self.subject.name,
            role=self.subject.role,
            action=self.action,
            resource=self.resource.name if _keeps(self.resource.name) else clean_line(self.resource.name, 500),
            granted=self.granted,
            at=self.at,
            rules=None if document is None else document.digest,
            outcome=self.decision.outcome,
            layer=self.decision.layer,
            rule=self.decision.rule,
            left_out=left_out,
        ).model_dump(mode="json", by_alias=True, exclude={"request"})
        narrowed: dict[str, JsonValue] = {"request": self.narrowing.data()} if self.narrowing else {}
        return {**made, "attributes": attributes, "missing": missing, **narrowed}


class RecordedDecision(BaseModel):
    """What an event holds of a decision.

    ``rules`` is the digest of the rules that decided; ``missing`` are attributes that were compared and are not
    recorded, ``left_out`` says how many arguments no rule looked at; ``request`` is what the caller narrowed itself.
    """

    model_config = ConfigDict(
        defer_build=True, frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )

    kind: Kind
    name: str
    role: str
    action: Action
    resource: str
    attributes: dict[str, StrictBool | StrictInt | StrictStr | list[StrictStr]] = {}
    granted: bool
    at: Annotated[float, Field(allow_inf_nan=False)]
    rules: str | None
    outcome: Literal["allow", "deny", "needs_grant"]
    layer: str
    rule: str
    missing: list[str] = []
    left_out: int
    request: dict[Literal["deny", "only"], list[StrictStr]] = {}

    @property
    def said(self) -> dict[str, JsonValue]:
        """What was decided, and by which rule."""
        return {"decision": self.outcome, "layer": self.layer, "rule": self.rule}


@dataclass(frozen=True, slots=True)
class NotDecidable:
    """Why a recorded decision can't be made again."""

    reason: str


def recorded_in(data: Mapping[str, JsonValue]) -> RecordedDecision | None:
    """Return the decision that the data of an event holds; None where it holds none.

    Raises:
        ValueError: it can't be read.
    """
    if DECIDED not in data:
        return None
    try:
        return RecordedDecision.model_validate(data[DECIDED])
    except ValidationError:
        raise ValueError("the recorded decision can't be read") from None


def decide_again(
    found: RecordedDecision, rules: RuleSet, arguments: Mapping[str, Value] | None = None
) -> Decision | NotDecidable:
    """Make a recorded decision by ``rules``.

    Args:
        found: what was recorded.
        rules: those of then or of now.
        arguments: attributes of the call's arguments, where the event shows all of them.
    """
    if found.missing:
        return NotDecidable(f"not recorded in full: {', '.join(found.missing[:5])}")
    if found.action is Action.WORKSPACE_LEND:
        return NotDecidable("it looked at the disk")
    attributes: dict[str, Value] = dict(arguments or {})
    for name, value in found.attributes.items():
        attributes[name] = tuple(value) if isinstance(value, list) else value
    if found.left_out and arguments is None:
        unknown = rules.compared_arguments(found.action, found.kind) - attributes.keys()
        if unknown:
            named = ", ".join(sorted(unknown)[:5])
            return NotDecidable(f"these rules compare arguments that are not recorded: {named}")
    return rules.decide(
        Subject(found.kind, found.name, role=found.role),
        found.action,
        Resource(found.resource, attributes),
        Narrowing(tuple(found.request.get("deny", ())), tuple(found.request.get("only", ()))).rules,
        granted=found.granted,
        now=found.at,
    )


def _keeps(value: Value) -> bool:
    """Tell whether a value can be recorded as it is: it is short enough, and UTF-8 can hold it."""
    match value:
        case str():
            return len(value) <= MAX_VALUE_CHARS and _encodes(value)
        case tuple():
            return len(value) <= MAX_VALUES and all(_keeps(one) for one in value)
        case _:
            return True


def _encodes(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
