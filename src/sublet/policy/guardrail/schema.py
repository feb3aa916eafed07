"""A JSON Schema (Draft 2020-12) that was itself checked, and checks within bounds (SuperAgent 10, step 2)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from sublet.policy.guardrail.failure import MAX_ISSUES, Issue
from sublet.policy.guardrail.keywords import MAX_MESSAGE_CHARS, Budget, TooMuch, bounded_validator
from sublet.policy.guardrail.patterns import BadPattern, LinearPattern
from sublet.protocol.canonical import JsonValue, narrow
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.schema import DIALECT
from sublet.protocol.text import clean_line

MAX_SCHEMA_BYTES: Final = 64 * 1024
MAX_PATTERNS: Final = 32
MAX_APPLIED: Final = 8
"""How far ``$ref`` and ``allOf`` are followed for defaults and types."""
MAX_PARTS: Final = 64
"""How many schemas that leads to are looked at for one value."""
_NO_FORMATS: Final = FormatChecker(formats=())
_DATA: Final = frozenset({"enum", "const", "default", "examples"})
_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})


class CheckedSchema:
    """A schema that can be relied on.

    Args:
        document: the schema.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: no schema of Draft 2020-12, too large, or one that refers to anything beyond
            itself.
    """

    def __init__(self, document: Mapping[str, JsonValue]) -> None:
        self.document: dict[str, Any] = _plain(document)
        self._registry: Registry[Any] = Registry()
        declared = self.document.get("$schema", DIALECT)
        if not isinstance(declared, str) or declared.removesuffix("#") != DIALECT:
            raise _bad(f"$schema is {str(declared)[:100]!r}, and only {DIALECT} is known here")
        try:
            Draft202012Validator.check_schema(self.document, format_checker=_NO_FORMATS)
        except SchemaError as error:
            raise _bad(f"{_pointer(error.absolute_path) or 'the schema'}: {error.message}") from None
        except (RecursionError, ArithmeticError) as error:
            raise _bad(type(error).__name__) from None
        resource = DRAFT202012.create_resource(self.document)
        # Whatever its $id is, all references are to parts of it.
        self._resolver = self._registry.with_resource("", resource).resolver("")
        self._patterns: dict[str, LinearPattern] = {}
        self._look_into()

    def _look_into(self) -> None:
        """Compile the patterns, and resolve every reference now rather than while something depends on it."""
        for place, subschema in _subschemas(self.document, ""):
            if place and "$id" in subschema:
                raise _bad(f"{place}/$id: only the whole schema has an $id here")
            for keyword in ("$ref", "$dynamicRef"):
                reference = subschema.get(keyword)
                if not isinstance(reference, str):
                    continue
                if not reference.startswith("#"):
                    raise _bad(f"{place}/{keyword}: refers beyond the schema, to {reference[:100]!r}")
                try:
                    found = self._resolver.lookup(reference).contents
                except (Unresolvable, ValueError, TypeError, KeyError, LookupError):
                    raise _bad(f"{place}/{keyword}: {reference[:100]!r} is not there") from None
                if not isinstance(found, dict | bool):
                    raise _bad(f"{place}/{keyword}: {reference[:100]!r} is no schema")
            for source in [subschema.get("pattern"), *subschema.get("patternProperties", ())]:
                if isinstance(source, str):
                    self._compile(source, place)

    def _compile(self, source: str, place: str) -> None:
        if source in self._patterns:
            return
        if len(self._patterns) >= MAX_PATTERNS:
            raise _bad(f"there are more than {MAX_PATTERNS} patterns")
        try:
            self._patterns[source] = LinearPattern(source)
        except BadPattern as error:
            raise _bad(f"{place or 'the schema'}: {error}") from None

    def issues(self, value: JsonValue, budget: Budget | None = None) -> list[Issue]:
        """Return what is wrong with ``value``, at most ``MAX_ISSUES``; nothing where it satisfies the schema.

        Args:
            value: is held against the schema.
            budget: for all checks of one reply together; by default for this check alone.
        """
        bounded = bounded_validator(self._patterns, budget or Budget(), self._resolved)
        validator = bounded(self.document, registry=self._registry)
        found: list[Issue] = []
        try:
            for error in islice(validator.iter_errors(value), MAX_ISSUES):
                found.append(_issue(error))  # noqa: PERF401 - what was found before the bound is kept
        except TooMuch:
            found.append(Issue("", "the check takes too many steps, so that it was given up", "bound"))
        except RecursionError:
            found.append(Issue("", "the schema refers to itself without an end", "bound"))
        except ArithmeticError:
            found.append(Issue("", "a number is too large to be compared", "bound"))
        return found[-MAX_ISSUES:]

    def _resolved(self, reference: str) -> Any:
        return self._resolver.lookup(reference).contents

    def applied(self, subschema: Any) -> list[dict[str, Any]]:
        """Return a part of the schema and what it applies without any condition: its ``$ref`` and ``allOf``.

        At most ``MAX_PARTS``: parts that name each other many times multiply with every step.
        """
        found: list[dict[str, Any]] = []
        self._apply(subschema, 0, found, set())
        return found

    def _apply(self, subschema: Any, depth: int, found: list[dict[str, Any]], followed: set[str]) -> None:
        if not isinstance(subschema, dict) or depth > MAX_APPLIED or len(found) >= MAX_PARTS:
            return
        found.append(subschema)
        reference = subschema.get("$ref")
        if isinstance(reference, str) and reference not in followed:
            followed.add(reference)
            self._apply(self._resolver.lookup(reference).contents, depth + 1, found, followed)
        for inner in subschema.get("allOf", ()):
            self._apply(inner, depth + 1, found, followed)


def _plain(document: Mapping[str, JsonValue]) -> dict[str, Any]:
    if not isinstance(document, Mapping):
        raise _bad("it is no JSON object")
    try:
        narrowed = narrow(dict(document))
        size = len(json.dumps(narrowed, ensure_ascii=False).encode())
    except (ValueError, TypeError, RecursionError) as error:
        raise _bad(str(error)) from None
    if size > MAX_SCHEMA_BYTES:
        raise _bad(f"it has {size} bytes, and at most {MAX_SCHEMA_BYTES} are taken")
    assert isinstance(narrowed, dict)
    return narrowed


def _subschemas(schema: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return every object that is a schema; what is data, or a name that looks like a keyword, is none."""
    if isinstance(schema, list):
        for index, item in enumerate(schema):
            yield from _subschemas(item, f"{place}/{index}")
    if not isinstance(schema, dict):
        return
    yield place, schema
    for keyword, value in schema.items():
        if keyword in _DATA:
            continue
        if keyword in _NAMED and isinstance(value, dict):
            for name, item in value.items():
                yield from _subschemas(item, f"{place}/{keyword}/{name}")
        else:
            yield from _subschemas(value, f"{place}/{keyword}")


def _issue(error: Any) -> Issue:
    path = _pointer(error.absolute_path)
    return Issue(clean_line(path, 200), clean_line(error.message), str(error.validator))


def _pointer(path: Any) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _bad(reason: str) -> SubletError:
    return SubletError(
        LocalCode.INVALID_ARGUMENT,
        f"the JSON Schema can't be used: {clean_line(reason, MAX_MESSAGE_CHARS)}",
        "It has to be of Draft 2020-12 and complete in itself.",
    )
