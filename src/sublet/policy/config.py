"""``policy.json``: read, checked against its shape, linted and tested, with every problem named by its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from sublet.disk.plain_file import read_plain
from sublet.policy.attributes import PATH_RESOURCES
from sublet.policy.decision import Action, Subject
from sublet.policy.defaults import CEILING, DEFAULT_RULES
from sublet.policy.effects import may_only_look
from sublet.policy.file_model import ConditionModel, FileModel, RuleModel, SubjectModel, TestModel
from sublet.policy.globs import matcher
from sublet.policy.limits import AdmissionLimits, Limits
from sublet.policy.lint import lint
from sublet.policy.lint_warnings import lint_warnings
from sublet.policy.names import plain
from sublet.policy.path_conditions import settled_condition
from sublet.policy.paths import LENDING, PATH, expanded, led_to
from sublet.policy.rule_tests import RuleTest, run_tests
from sublet.policy.rules import KINDS, Condition, Layer, Rule
from sublet.policy.subjects import checked, subject_named
from sublet.policy.table import RuleTable
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.faults import fault_words
from sublet.protocol.strict_model import read_strictly
from sublet.protocol.text import clean_line
from sublet.protocol.unique_json import unique_json

MAX_POLICY_BYTES: Final = 1024 * 1024
MAX_RULES: Final = 5_000
MAX_PROBLEMS_SHOWN: Final = 5

_DEFAULTS: Final = Limits()


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """What a policy file says: rules beside the default ones, limits, and tests of the rules.

    ``from_file`` is False for what holds where there is no file.
    """

    rules: tuple[Rule, ...] = ()
    limits: Limits = _DEFAULTS
    tests: tuple[RuleTest, ...] = ()
    from_file: bool = False
    places: tuple[str, ...] = ()

    def warnings(self, agent_rules: Sequence[Rule] = ()) -> list[str]:
        """Return which rules hold less than they seem to, those that ``agent.json`` makes too."""
        own = {rule.id: rule for rule in agent_rules}
        return lint_warnings({**dict(zip(self.places, self.rules, strict=False)), **own})


class BadPolicy(Exception):
    """What is wrong with a policy, place by place."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(*problems)
        self.problems = problems


def load(source: Path) -> PolicyConfig:
    """Return what the file says; the defaults where there is none.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` naming the place in the file and what is wrong there.
    """
    try:
        document = read(source)
        return PolicyConfig() if document is None else parse(document)
    except BadPolicy as exc:
        raise _bad(source, exc.problems) from None


def read(source: Path) -> Mapping[str, object] | None:
    """Return the JSON object in the file; None where there is no file, and only then.

    Raises:
        BadPolicy: it can't be read, or is no JSON object.
    """
    try:
        raw = read_plain(source, MAX_POLICY_BYTES)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise BadPolicy([f"can't be read: {exc.strerror}"]) from None
    if len(raw) > MAX_POLICY_BYTES:
        raise BadPolicy([f"is larger than {MAX_POLICY_BYTES} bytes"])
    try:
        document = unique_json(raw)
    except ValueError as exc:
        raise BadPolicy([f"is not JSON: {exc}"]) from None
    if not isinstance(document, dict):
        raise BadPolicy(["the file is no JSON object"])
    return document


def parse(document: object, *, tested: bool = True) -> PolicyConfig:
    """Return the policy that a JSON document says.

    Args:
        document: the document.
        tested: whether the tests that it carries have to pass.

    Raises:
        BadPolicy: naming every problem by its place.
    """
    try:
        file = read_strictly(FileModel, document)
    except ValidationError as exc:
        found = exc.errors()
        raise BadPolicy([f"{_place(e['loc'])}: {fault_words(e, FileModel)}" for e in found]) from None
    problems: list[str] = []
    rules: dict[str, Rule] = {}
    placed = _placed(file)
    if len(placed) > MAX_RULES:
        raise BadPolicy([f"there are more than {MAX_RULES} rules"])
    for place, model, layer, told in placed:
        rules[place] = _rule(place, model, layer, told, problems)
    problems += lint(rules)
    tests = [_test(f"tests[{i}]", model, problems) for i, model in enumerate(file.tests)]
    limits = Limits(
        max_ttl_seconds=file.limits.max_ttl_seconds,
        slots=file.limits.slots,
        access_modes=tuple(file.limits.access_modes),
        admission=AdmissionLimits(**file.limits.admission.model_dump()),
        require_enforced=tuple(file.limits.require_enforced),
    )
    config = PolicyConfig(
        tuple(rules.values()), limits, tuple(test for test in tests if test is not None), True, tuple(rules)
    )
    if not problems and tested and config.tests:
        results = run_tests(config.tests, RuleTable((*DEFAULT_RULES, *config.rules)), limits)
        problems = [f"{result.test.place}: {result.problem}" for result in results if not result.passed]
    if problems:
        raise BadPolicy(problems)
    return config


def _placed(file: FileModel) -> list[tuple[str, RuleModel, Layer, SubjectModel]]:
    """Return every rule with its place in the file, its layer, and of whom the layer speaks."""
    found: list[tuple[str, RuleModel, Layer, SubjectModel]] = [
        (f"global[{i}]", rule, "global", SubjectModel()) for i, rule in enumerate(file.rules_global)
    ]
    for role, rules in file.role.items():
        kind = next((kind for kind in KINDS if kind == role), None)
        told = SubjectModel(kind=kind) if kind else SubjectModel(kind="agent", role=role)
        found += [(f"role.{role}[{i}]", rule, "role", told) for i, rule in enumerate(rules)]
    for name, rules in file.agent.items():
        found += [(f"agent.{name}[{i}]", rule, "agent", SubjectModel(name=name)) for i, rule in enumerate(rules)]
    return found


def _rule(place: str, model: RuleModel, layer: Layer, told: SubjectModel, problems: list[str]) -> Rule:
    subject = model.subject
    if told.kind is not None and subject.kind not in (None, told.kind):
        problems.append(f"{place}.subject.kind: a rule below {place.partition('[')[0]} speaks of {told.kind} only")
    if told.role is not None and subject.role is not None:
        problems.append(f"{place}.subject.role: a rule below {place.partition('[')[0]} speaks of that role already")
    if told.name is not None and subject.name is not None:
        problems.append(f"{place}.subject.name: a rule below agent speaks of {told.name} already")
    kind = told.kind or subject.kind
    role = told.role or subject.role
    if role is not None and kind not in (None, "agent"):
        problems.append(f"{place}.subject.role: only agents have roles, and the rule speaks of {kind}")
    patterns = [model.action] if isinstance(model.action, str) else model.action
    actions: set[Action] = set()
    for pattern in patterns:
        matches = matcher(plain(pattern))
        named = {action for action in Action if matches(str(action))}
        if not named:
            problems.append(f"{place}.action: {pattern!r} names no action; they are {', '.join(sorted(Action))}")
        actions |= named
    kinds = {k for k in KINDS if kind in (None, k) and (role is None or k == "agent")}
    if model.effect != "deny":
        # A wildcard means what the kind may be allowed at all; lint tells where nothing is left.
        kinds = {k for k in kinds if actions & CEILING[k]}
    if model.hide and model.effect != "deny":
        problems.append(f"{place}.hide: only what is denied can be hidden")
    if model.hint and model.effect == "allow":
        problems.append(f"{place}.hint: whoever is allowed is shown none; it is for what denies or wants approval")
    if told.name is not None and told.name.partition(":")[0] in KINDS:
        of_kind, _, rest = told.name.partition(":")
        meant = f"{rest or 'NAME'}, with subject.kind {of_kind}"
        problems.append(f"{place.partition('[')[0]}: a name stands without its kind: {meant}")
    if model.record and (model.effect != "allow" or not any(map(may_only_look, actions))):
        problems.append(f"{place}.record: refusals and changes are recorded anyway; it is for what allows reading")
    return Rule(
        id=model.id,
        effect=model.effect,
        layer=layer,
        kinds=frozenset(kinds),
        actions=frozenset(actions),
        name=told.name or subject.name or "*",
        role=role or "*",
        resource=led_to(expanded(model.resource))[-1] if actions and actions <= PATH_RESOURCES else model.resource,
        when={key: _condition(key, value, actions) for key, value in model.when.items()},
        times=model.times.times() if model.times else None,
        hide=model.hide,
        record=model.record,
        reason=model.reason,
        hint=model.hint,
    )


def _condition(name: str, value: ConditionModel | bool | int | str, actions: set[Action]) -> Condition:
    if isinstance(value, ConditionModel):
        values = None if value.any_of is None else tuple(value.any_of)
        scopes = (value.within,) if isinstance(value.within, str) else value.within
        made = Condition(values, value.like, value.min, value.max, None if scopes is None else tuple(scopes))
    else:
        made = Condition(values=(value,))
    return settled_condition(made) if name == PATH and actions & LENDING else made


def _test(place: str, model: TestModel, problems: list[str]) -> RuleTest | None:
    try:
        subject = _subject(model.subject)
        action = Action(model.action)
    except SubletError as error:
        problems.append(f"{place}.subject: {error.message}")
        return None
    except ValueError:
        problems.append(f"{place}.action: {model.action!r} is no action; they are {', '.join(sorted(Action))}")
        return None
    return RuleTest(
        place=place,
        subject=subject,
        action=action,
        resource=model.resource,
        attributes={key: tuple(v) if isinstance(v, list) else v for key, v in model.attributes.items()},
        arguments=model.args,
        expected=model.expect,
        rule=model.rule,
        at=model.at.timestamp() if model.at else None,
    )


def _subject(told: SubjectModel | str) -> Subject:
    if isinstance(told, str):
        return checked(subject_named(told))
    return checked(Subject(told.kind or "agent", told.name or "", role=told.role or ""))


def _place(location: tuple[int | str, ...]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return text.lstrip(".") or "the file"


def _bad(source: Path, problems: Sequence[str]) -> SubletError:
    shown = "; ".join(clean_line(p, 300) for p in problems[:MAX_PROBLEMS_SHOWN])
    more = len(problems) - MAX_PROBLEMS_SHOWN
    return SubletError(
        LocalCode.INVALID_ARGUMENT,
        f"{source}: {shown}" + (f"; and {more} more problems" if more > 0 else ""),
        "Mend the file, or move it away to have the defaults; `sublet policy lint` lists every problem.",
    )
