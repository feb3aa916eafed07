"""What is on the disk has types of its own: nothing of a record is left out, and no byte changes unseen."""

from __future__ import annotations

import json
import types
import typing
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from sublet.daemon.storage.records import AssignmentRecord, DelegationRecord
from sublet.daemon.storage.stored import (
    StoredAssignment,
    StoredDelegation,
    read_assignment,
    read_delegation,
    to_json,
)
from sublet.daemon.storage.stored_parts import Stored
from support.full_records import full_assignment, full_delegation

FORM = Path(__file__).parents[2] / "golden" / "stored-records.json"
PAIRS: list[tuple[type[BaseModel], type[Stored]]] = [
    (DelegationRecord, StoredDelegation),
    (AssignmentRecord, StoredAssignment),
]


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the models that a type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in models_in(part)]


def values_of(annotation: Any) -> set[str]:
    """Return the words that a type takes, where it takes no others."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return {str(one.value) for one in annotation}
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return set(map(str, typing.get_args(annotation)))
    if origin in (typing.Union, types.UnionType):
        return {one for part in typing.get_args(annotation) for one in values_of(part)}
    return set()


def differences(record: type[BaseModel], stored: type[BaseModel], at: str = "") -> list[str]:
    """Return what one of both has and the other has not, by the path of the field."""
    found = [f"{at}{name}" for name in record.model_fields.keys() ^ stored.model_fields.keys()]
    for name in record.model_fields.keys() & stored.model_fields.keys():
        ours, kept = record.model_fields[name].annotation, stored.model_fields[name].annotation
        if values_of(ours) != values_of(kept):
            found.append(f"{at}{name}: {values_of(ours) ^ values_of(kept)}")
        for one, other in zip(models_in(ours), models_in(kept), strict=True):
            found += differences(one, other, f"{at}{name}.")
    return found


@pytest.mark.parametrize(("record", "stored"), PAIRS)
def test_all_of_a_record_is_stored(record: type[BaseModel], stored: type[Stored]) -> None:
    """A field that is new in a record, or in what it is made of, is stored as well, or told here why it is not."""
    assert differences(record, stored) == []


@pytest.mark.parametrize(("record", "stored"), PAIRS)
def test_nothing_stored_is_of_another_layer(record: type[BaseModel], stored: type[Stored]) -> None:
    def below(model: type[BaseModel]) -> set[type[BaseModel]]:
        inner = {one for field in model.model_fields.values() for one in models_in(field.annotation)}
        return {model}.union(*map(below, inner))

    assert {model.__module__.rpartition(".")[0] for model in below(stored)} == {"sublet.daemon.storage"}
    assert all(issubclass(model, Stored) for model in below(stored))
    assert len(below(record)) == len(below(stored)), "each part has its own counterpart"


def test_the_form_on_the_disk_changes_only_knowingly() -> None:
    """Where this fails: give a new field a default, or write a migration; then write the form down anew.

    python -c "from daemon.storage.test_stored import write_form; write_form()", with tests on the path.
    """
    assert json.loads(FORM.read_text(encoding="utf-8")) == form()


def form() -> dict[str, Any]:
    """Return the form of both tables as JSON Schema, without words for people."""
    kept = {stored.__name__: stored.model_json_schema(mode="serialization") for _, stored in PAIRS}
    return typing.cast("dict[str, Any]", without_words(kept))


def without_words(value: Any) -> Any:
    """Return a JSON Schema without titles and descriptions."""
    if isinstance(value, dict):
        return {
            name: without_words(one)
            for name, one in value.items()
            if not (name in ("title", "description") and isinstance(one, str))
        }
    return [without_words(one) for one in value] if isinstance(value, list) else value


def write_form() -> None:
    """Write the form down."""
    FORM.write_text(json.dumps(form(), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def test_a_full_record_comes_back_and_has_the_fields_that_it_always_had() -> None:
    delegation, assignment = full_delegation(), full_assignment()
    assert read_delegation(to_json(delegation).encode()) == delegation
    assert read_assignment(to_json(assignment).encode()) == assignment
    # Rows were dumps of the records before they had types of their own; those keep the order of a request's fields.
    assert json.loads(to_json(delegation)) == delegation.model_dump(mode="json")
    assert to_json(assignment) == assignment.model_dump_json()


def test_the_full_records_have_no_field_at_its_default() -> None:
    """So that a field that got lost on the way is seen."""
    for record in (full_delegation(), full_assignment()):
        assert unset(record) == []


def unset(value: BaseModel, at: str = "") -> list[str]:
    """Return the fields that have their default."""
    found: list[str] = []
    for name, field in type(value).model_fields.items():
        one = getattr(value, name)
        if not field.is_required() and one == field.get_default(call_default_factory=True) and not is_only(field):
            found.append(at + name)
        for inner in one if isinstance(one, list | tuple) else [one]:
            if isinstance(inner, BaseModel):
                found += unset(inner, f"{at}{name}.")
    return found


def is_only(field: Any) -> bool:
    """Tell whether a field has one value alone."""
    return typing.get_origin(field.annotation) is typing.Literal and len(typing.get_args(field.annotation)) == 1


def test_what_a_later_version_added_is_left_out_and_breaks_nothing() -> None:
    raw = json.loads(to_json(full_delegation()))
    raw["new"] = raw["request"]["new"] = raw["accept"]["sublet"]["new"] = 1
    assert read_delegation(json.dumps(raw).encode()) == full_delegation()


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"id": 1}', b"\xff"])
def test_what_is_no_record_is_told(raw: bytes) -> None:
    for read in (read_delegation, read_assignment):
        with pytest.raises(ValueError, match="validation error"):
            read(raw)
