"""A plugin of pytest: ``SUBLET_DROP_FIELD=MODULE:MODEL.FIELD`` lets a model read as if the field were absent.

Models are built when they are first used, so that the plugin, loaded before any test (``-p fields.dropping``), reaches
those that hold the model as well. It reaches this process, and the commands that tests run in it, but no daemon in a
process of its own.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, Final

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

VARIABLE: Final = "SUBLET_DROP_FIELD"


def drop(model: type[BaseModel], name: str) -> None:
    """Let ``model`` read its input as if the field were absent."""
    names = {name, model.model_fields[name].alias}

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: kept for key, kept in value.items() if key not in names}
        return value

    def schema(_: type[BaseModel], source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(without, handler(source))

    model.__get_pydantic_core_schema__ = classmethod(schema)  # type: ignore[assignment,method-assign]
    model.model_rebuild(force=True)


def pytest_configure() -> None:
    """Drop what the environment names."""
    if named := os.environ.get(VARIABLE):
        place, _, field = named.rpartition(".")
        module, _, model = place.partition(":")
        drop(getattr(importlib.import_module(module), model), field)
