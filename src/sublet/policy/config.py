"""``policy.json``: read, checked against its shape, and linted, with every problem named by its place."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, ValidationError

from sublet.policy.defaults import CEILING
from sublet.policy.globs import matcher
from sublet.policy.limits import AdmissionLimits, Limits
from sublet.policy.lint import lint
from sublet.policy.model import Action, Kind
from sublet.policy.names import plain
from sublet.policy.rules import KINDS, Condition, Effect, Layer, Rule
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.messages import MAX_TTL_SECONDS, AccessMode
from sublet.protocol.text import clean_line

MAX_POLICY_BYTES: Final = 1024 * 1024
MAX_RULES: Final = 5_000
MAX_PROBLEMS_SHOWN: Final = 5

_DEFAULTS: Final = Limits()

Pattern = Annotated[str, Field(min_length=1, max_length=1_000)]
Item = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """What a policy file says: rules beside the default ones, and limits."""

    rules: tuple[Rule, ...] = ()
    limits: Limits = _DEFAULTS


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Condition(_Model):
    any_of: Annotated[list[StrictBool | StrictInt | str], Field(min_length=1)] | None = None
    like: Pattern | None = None
    min: StrictInt | None = None
    max: StrictInt | None = None


class _Subject(_Model):
    kind: Kind | None = None
    name: Pattern | None = None


class _Rule(_Model):
    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$")]
    effect: Effect
    action: Annotated[list[Pattern], Field(min_length=1)] | Pattern
    subject: _Subject = _Subject()
    resource: Pattern = "*"
    when: dict[str, _Condition | StrictBool | StrictInt | str] = {}
    reason: Annotated[str, Field(max_length=500)] = ""
    hint: Annotated[str, Field(max_length=500)] = ""


class _Admission(_Model):
    max_total_bytes: Annotated[StrictInt, Field(ge=0)] = _DEFAULTS.admission.max_total_bytes
    max_files: Annotated[StrictInt, Field(ge=0, le=1_000_000)] = _DEFAULTS.admission.max_files
    max_file_bytes: Annotated[StrictInt, Field(ge=0)] = _DEFAULTS.admission.max_file_bytes
    max_seconds: Annotated[float, Field(gt=0, le=120)] = _DEFAULTS.admission.max_seconds
    on_sensitive: Literal["hide", "refuse"] = "hide"


class _Limits(_Model):
    max_ttl_seconds: Annotated[StrictInt, Field(ge=1, le=MAX_TTL_SECONDS)] = _DEFAULTS.max_ttl_seconds
    slots: Annotated[StrictInt, Field(ge=0, le=1_000)] = _DEFAULTS.slots
    access_modes: Annotated[list[AccessMode], Field(min_length=1)] = ["ro", "rw"]
    admission: _Admission = _Admission()
    require_enforced: Annotated[list[Item], Field(max_length=16)] = []


class _File(_Model):
    version: Literal[1]
    limits: _Limits = _Limits()
    rules_global: Annotated[list[_Rule], Field(alias="global")] = []
    role: dict[Kind, list[_Rule]] = {}
    agent: dict[Pattern, list[_Rule]] = {}


def load(source: Path) -> PolicyConfig:
    """Return what the file says; the defaults where there is none.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` naming the place in the file and what is wrong there.
    """
    try:
        with source.open("rb") as file:
            raw = file.read(MAX_POLICY_BYTES + 1)
    except FileNotFoundError:
        return PolicyConfig()
    except OSError as exc:
        raise _bad(source, [f"can't be read: {exc.strerror}"]) from None
    if len(raw) > MAX_POLICY_BYTES:
        raise _bad(source, [f"is larger than {MAX_POLICY_BYTES} bytes"])
    try:
        return parse(json.loads(raw, object_pairs_hook=_unique))
    except _BadPolicy as exc:
        raise _bad(source, exc.problems) from None
    except (ValueError, RecursionError) as exc:
        raise _bad(source, [f"is not JSON: {exc}"]) from None


class _BadPolicy(Exception):
    """What is wrong, place by place."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(*problems)
        self.problems = problems


def parse(document: object) -> PolicyConfig:
    """Return the policy that a JSON document says.

    Raises:
        _BadPolicy: naming every problem by its place.
    """
    try:
        file = _File.model_validate(document)
    except ValidationError as exc:
        found = exc.errors(include_url=False)
        raise _BadPolicy([f"{_place(e['loc'])}: {e['msg'].removeprefix('Value error, ')}" for e in found]) from None
    problems: list[str] = []
    rules: dict[str, Rule] = {}
    for place, model, layer, kind, name in _placed(file):
        rule = _rule(place, model, layer, kind, name, problems)
        if rule is not None:
            rules[place] = rule
    if len(rules) > MAX_RULES:
        problems.append(f"there are more than {MAX_RULES} rules")
    problems += lint(rules)
    if problems:
        raise _BadPolicy(problems)
    admission = file.limits.admission
    return PolicyConfig(
        tuple(rules.values()),
        Limits(
            max_ttl_seconds=file.limits.max_ttl_seconds,
            slots=file.limits.slots,
            access_modes=tuple(file.limits.access_modes),
            admission=AdmissionLimits(**admission.model_dump()),
            require_enforced=tuple(file.limits.require_enforced),
        ),
    )


def _placed(file: _File) -> list[tuple[str, _Rule, Layer, Kind | None, str | None]]:
    """Return every rule with its place in the file, its layer, and the subject that the layer speaks of."""
    found: list[tuple[str, _Rule, Layer, Kind | None, str | None]] = []
    found += [(f"global[{i}]", rule, "global", None, None) for i, rule in enumerate(file.rules_global)]
    for kind, rules in file.role.items():
        found += [(f"role.{kind}[{i}]", rule, "role", kind, None) for i, rule in enumerate(rules)]
    for name, rules in file.agent.items():
        found += [(f"agent.{name}[{i}]", rule, "agent", None, name) for i, rule in enumerate(rules)]
    return found


def _rule(
    place: str, model: _Rule, layer: Layer, kind: Kind | None, name: str | None, problems: list[str]
) -> Rule | None:
    if kind is not None and model.subject.kind not in (None, kind):
        problems.append(f"{place}.subject.kind: a rule below role.{kind} can't speak of {model.subject.kind}")
    if name is not None and model.subject.name is not None:
        problems.append(f"{place}.subject.name: a rule below agent speaks of {name} already")
    patterns = [model.action] if isinstance(model.action, str) else model.action
    actions: set[Action] = set()
    for pattern in patterns:
        matches = matcher(plain(pattern))
        named = {action for action in Action if matches(str(action))}
        if not named:
            problems.append(f"{place}.action: {pattern!r} names no action; they are {', '.join(sorted(Action))}")
        actions |= named
    kinds = {k for k in KINDS if (kind or model.subject.kind) in (None, k)}
    if model.effect == "allow":
        # A wildcard means what the kind may be allowed at all; lint tells where nothing is left.
        kinds = {k for k in kinds if actions & CEILING[k]}
    return Rule(
        id=model.id,
        effect=model.effect,
        layer=layer,
        kinds=frozenset(kinds),
        actions=frozenset(actions),
        name=name or model.subject.name or "*",
        resource=model.resource,
        when={key: _condition(value) for key, value in model.when.items()},
        reason=model.reason,
        hint=model.hint,
    )


def _condition(value: _Condition | bool | int | str) -> Condition:
    if not isinstance(value, _Condition):
        return Condition(values=(value,))
    values = None if value.any_of is None else tuple(value.any_of)
    return Condition(values=values, glob=value.like, minimum=value.min, maximum=value.max)


def _unique(pairs: Sequence[tuple[str, Any]]) -> Mapping[str, Any]:
    """Build a JSON object, and refuse a name that is there twice: which one would count?"""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _BadPolicy([f"the name {key!r} is there twice in one object"])
        found[key] = value
    return found


def _place(location: tuple[int | str, ...]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return text.lstrip(".") or "the file"


def _bad(source: Path, problems: Sequence[str]) -> SubletError:
    shown = "; ".join(clean_line(p, 300) for p in problems[:MAX_PROBLEMS_SHOWN])
    more = len(problems) - MAX_PROBLEMS_SHOWN
    return SubletError(
        LocalCode.INVALID_ARGUMENT,
        f"{source}: {shown}" + (f"; and {more} more problems" if more > 0 else ""),
        "Mend the file, or move it away to have the defaults.",
    )
