"""What was meant by a wrong name, and which fields a place in a document has."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sublet.protocol.faults import fault_words, fields_at
from sublet.protocol.near import MAX_COMPARED, MAX_GIVEN_CHARS, did_you_mean


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("bbo", ", did you mean 'bob'?"),
        ("BOB", ", did you mean 'bob'?"),
        ("Carla", ", did you mean 'carl'?"),
        ("zzz", ""),
        ("", ""),
        ("b" * (MAX_GIVEN_CHARS + 1), ""),
    ],
)
def test_a_name_that_is_nearly_one_is_told(given: str, told: str) -> None:
    assert did_you_mean(given, ["bob", "carl"]) == told


def test_of_many_names_a_bounded_part_is_compared() -> None:
    taken = 0

    def names() -> object:
        nonlocal taken
        while True:
            taken += 1
            yield f"name{taken}"

    did_you_mean("bob", names())  # type: ignore[arg-type]
    assert taken <= MAX_COMPARED + 1


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Shell(Strict):
    type: Literal["shell"]
    command: list[str] = []


class Chat(Strict):
    type: Literal["chat"]
    model_name: str = Field(default="", alias="modelName")


class Part(Strict):
    provider: Annotated[Shell | Chat, Field(discriminator="type")]
    limits: dict[str, Shell] = {}


class Whole(Strict):
    parts: list[Part] = []


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"part": []}, "there is no such field, did you mean 'parts'?"),
        ({"parts": [{"provider": {"type": "shell", "comand": []}}]}, "there is no such field, did you mean 'command'?"),
        (
            {"parts": [{"provider": {"type": "chat", "modelname": ""}}]},
            "there is no such field, did you mean 'modelName'?",
        ),
        ({"parts": [{"provider": {"type": "chat", "command": []}}]}, "there is no such field"),
        (
            {"parts": [{"provider": {"type": "shell"}, "limits": {"any": {"type": "shell", "commands": []}}}]},
            "there is no such field, did you mean 'command'?",
        ),
    ],
)
def test_a_field_that_is_nearly_one_of_its_place_is_told(document: object, told: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Whole.model_validate(document)
    assert fault_words(caught.value.errors()[0], Whole) == told


def test_a_place_that_is_in_no_document_has_the_fields_of_the_last_that_is() -> None:
    assert fields_at(Whole, ("nowhere", 3, "parts", 0)) == ["limits", "provider"]
