"""What each fork would do anew, done once in the process that forks."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from types import ModuleType

from pydantic import BaseModel


def import_below(package: ModuleType, but: Sequence[str] = ()) -> None:
    """Import all modules of a package, except those whose full names begin with one of ``but``."""
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.startswith(tuple(but)):
            importlib.import_module(found.name)


def build_models() -> None:
    """Build the validators of all models that are imported, which otherwise is done when one is first used."""
    for model in {*_below(BaseModel)}:
        model.model_rebuild()


def _below(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in kind.__subclasses__():
        yield model
        yield from _below(model)
