"""Reads a JSON document into a model exactly as the model's JSON Schema says: nothing is made of another type."""

from __future__ import annotations

import json
from typing import Any, Final, TypeVar

from pydantic import BaseModel, BeforeValidator

FROM_LIST: Final = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
"""In the type of a tuple of a strict model: a list will do, as JSON has nothing else."""

ModelT = TypeVar("ModelT", bound=BaseModel)


def read_strictly(model: type[ModelT], document: Any) -> ModelT:
    """Return ``document`` as ``model``, by the names that stand in files and by no others.

    A whole number may be written as ``5.0``, as in JSON Schema.

    Raises:
        ValidationError: it is none.
    """
    return model.model_validate_json(json.dumps(_whole(document)), strict=True, by_alias=True, by_name=False)


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _whole(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return value
