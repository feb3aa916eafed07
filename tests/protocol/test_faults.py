"""What is wrong with a field is said without pydantic's words."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sublet.protocol.faults import fault_words


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    effect: Literal["allow", "deny"]
    name: Annotated[str, Field(min_length=1)] = "x"
    prompt: Annotated[str, Field(min_length=3)] = "xyz"
    path: str = "/"

    @field_validator("path")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if not value.startswith("/"):
            raise ValueError("it is no absolute path")
        return value


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"effekt": 1}, "there is no such field"),
        ({"name": ""}, "it is empty"),
        ({"prompt": ""}, "it should have at least 3 characters"),
        ({"path": "x"}, "it is no absolute path"),
        ({"effect": "maybe"}, "it should be 'allow' or 'deny'"),
    ],
)
def test_what_is_wrong_is_said_in_our_words(more: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        _File.model_validate({"effect": "allow", **more})
    assert [fault_words(fault) for fault in refused.value.errors()] == [words]


def test_what_is_missing_is_said_to_be() -> None:
    with pytest.raises(ValidationError) as refused:
        _File.model_validate({})
    assert [fault_words(fault) for fault in refused.value.errors()] == ["it is missing"]
