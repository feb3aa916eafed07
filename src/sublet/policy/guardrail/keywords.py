"""JSON Schema keywords, those of jsonschema with bounds: each costs a step, none can hang on a pattern or a cycle."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend

from sublet.policy.guardrail.patterns import LinearPattern

MAX_STEPS: Final = 50_000
"""Keywords, error texts and pattern searches of one check; some tenths of a second."""
MAX_MESSAGE_CHARS: Final = 300
_CHARS_PER_STEP: Final = 16
"""Of a pattern's search, which costs up to some microseconds per character."""
_MESSAGE_CHARS_PER_STEP: Final = 256

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]
Errors = Iterator[ValidationError]


class TooMuch(Exception):
    """A check that takes more than its budget."""


class Budget:
    """Steps that are left of one check."""

    def __init__(self, steps: int = MAX_STEPS, whole: Budget | None = None) -> None:
        self.left = steps
        self._whole = whole

    def part(self, steps: int = MAX_STEPS) -> Budget:
        """Return the budget of one check, whose steps are taken from this one as well."""
        return Budget(steps, self)

    def spend(self, steps: int = 1) -> None:
        """Take ``steps``.

        Raises:
            TooMuch: there are none left.
        """
        self.left -= steps
        if self._whole is not None:
            self._whole.spend(steps)
        if self.left < 0:
            raise TooMuch


def bounded_validator(
    patterns: Mapping[str, LinearPattern], budget: Budget, resolved: Callable[[str], Any]
) -> type[Validator]:
    """Return Draft 2020-12 with ``patterns`` searched in linear time, and every step taken from ``budget``.

    Args:
        patterns: those that occur in the schema.
        budget: for one check; a further check takes a further class.
        resolved: returns what a reference within the schema names; the schema is one resource (``CheckedSchema``).
    """
    words = _Words(patterns, budget, resolved)
    keywords: dict[str, Keyword] = dict(Draft202012Validator.VALIDATORS)
    keywords |= {
        "pattern": words.pattern,
        "patternProperties": words.pattern_properties,
        "additionalProperties": words.additional_properties,
        "unevaluatedProperties": words.unevaluated_properties,
        "unevaluatedItems": words.unevaluated_items,
        "uniqueItems": words.unique_items,
    }
    bounded = {name: _counted(keyword, budget) for name, keyword in keywords.items()}
    made: type[Validator] = extend(Draft202012Validator, bounded)  # type: ignore[no-untyped-call]
    return made


def _counted(keyword: Keyword, budget: Budget) -> Keyword:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
        budget.spend()
        for error in keyword(validator, value, instance, schema) or ():
            # The texts quote what they are about, whatever its size.
            budget.spend(len(error.message) // _MESSAGE_CHARS_PER_STEP)
            error.message = error.message[:MAX_MESSAGE_CHARS]
            yield error

    return counted


class _Words:
    """Keywords that jsonschema has without a bound."""

    def __init__(self, patterns: Mapping[str, LinearPattern], budget: Budget, resolved: Callable[[str], Any]) -> None:
        self._patterns = patterns
        self._budget = budget
        self._resolved = resolved

    def _found(self, pattern: str, text: str) -> bool:
        self._budget.spend(1 + len(text) // _CHARS_PER_STEP)
        return self._patterns[pattern].matches(text)

    def pattern(self, validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
        if validator.is_type(instance, "string") and not self._found(value, instance):
            yield ValidationError(f"{instance[:100]!r} does not match {value!r}")

    def pattern_properties(self, validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
        if not validator.is_type(instance, "object"):
            return
        for pattern, subschema in value.items():
            for name, item in instance.items():
                if self._found(pattern, name):
                    yield from validator.descend(item, subschema, path=name)

    def additional_properties(self, validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
        if not validator.is_type(instance, "object"):
            return
        named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        extras = [n for n in instance if n not in named and not any(self._found(p, n) for p in patterns)]
        if value is False and extras:
            shown = ", ".join(repr(name[:60]) for name in extras[:8])
            yield ValidationError(f"names that are not allowed: {shown}")
            return
        for name in extras:
            yield from validator.descend(instance[name], value, path=name)

    def unevaluated_properties(self, validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
        if not validator.is_type(instance, "object"):
            return
        # Those that this keyword itself lets be are among them.
        seen = self._names(validator, instance, schema)
        for name in instance:
            if name not in seen:
                yield ValidationError(f"the name {name[:60]!r} is not allowed", path=[name])

    def unevaluated_items(self, validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
        if not validator.is_type(instance, "array"):
            return
        seen = self._indexes(validator, instance, schema)
        for index in range(len(instance)):
            if index not in seen:
                yield ValidationError("an item that is not allowed", path=[index])

    def unique_items(self, validator: Any, value: Any, instance: Any, schema: Any) -> Errors:
        if not value or not validator.is_type(instance, "array"):
            return
        seen: set[str] = set()
        for item in instance:
            # Whole floats were narrowed to integers before, so that equal values are written alike.
            written = json.dumps(item, sort_keys=True)
            self._budget.spend(1 + len(written) // _MESSAGE_CHARS_PER_STEP)
            if written in seen:
                yield ValidationError("has items that are not unique")
                return
            seen.add(written)

    def _names(self, validator: Any, instance: Any, schema: Any) -> set[str]:
        """Return the names of ``instance`` that ``schema`` has evaluated (JSON Schema 11.3)."""
        self._budget.spend()
        if not isinstance(schema, dict):
            return set()
        seen: set[str] = set(schema.get("properties", {})) & set(instance)
        for pattern in schema.get("patternProperties", {}):
            seen |= {name for name in instance if self._found(pattern, name)}
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            if keyword in schema:
                seen |= {n for n, item in instance.items() if _valid(validator, item, schema[keyword])}
        for one, inner in self._applied(validator, instance, schema):
            seen |= self._names(one, instance, inner)
        for name, inner in schema.get("dependentSchemas", {}).items():
            if name in instance:
                seen |= self._names(validator, instance, inner)
        return seen

    def _indexes(self, validator: Any, instance: Any, schema: Any) -> set[int]:
        """Return the indexes of ``instance`` that ``schema`` has evaluated (JSON Schema 11.2)."""
        self._budget.spend()
        if not isinstance(schema, dict):
            return set()
        if "items" in schema:
            return set(range(len(instance)))
        seen = set(range(min(len(schema.get("prefixItems", ())), len(instance))))
        for keyword in ("contains", "unevaluatedItems"):
            if keyword in schema:
                seen |= {i for i, item in enumerate(instance) if _valid(validator, item, schema[keyword])}
        for one, inner in self._applied(validator, instance, schema):
            seen |= self._indexes(one, instance, inner)
        return seen

    def _applied(self, validator: Any, instance: Any, schema: Any) -> Iterator[tuple[Any, Any]]:
        """Return the schemas that ``schema`` applies in place, each with the validator that resolves its references."""
        for keyword in ("$ref", "$dynamicRef"):
            if keyword in schema:
                found = self._resolved(schema[keyword])
                yield validator.evolve(schema=found), found
        for keyword in ("allOf", "oneOf", "anyOf"):
            for inner in schema.get(keyword, ()):
                if _valid(validator, instance, inner):
                    yield validator, inner
        if "if" in schema:
            holds = _valid(validator, instance, schema["if"])
            if holds:
                yield validator, schema["if"]
            branch = "then" if holds else "else"
            if branch in schema:
                yield validator, schema[branch]


def _valid(validator: Any, instance: Any, schema: Any) -> bool:
    return next(validator.descend(instance, schema), None) is None
