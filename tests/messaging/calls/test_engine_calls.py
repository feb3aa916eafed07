"""Operations of the engine as they are stated for their callers, against those that are declared."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import pytest

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.calls import device_calls, message_calls, people_calls, room_calls
from sublet.messaging.calls.engine_call import EngineCall
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.extensions import EXTENSIONS

MODULES: tuple[ModuleType, ...] = (room_calls, message_calls, people_calls, device_calls)
STATED: dict[str, EngineCall[..., Any]] = {
    one.id: one for module in MODULES for one in vars(module).values() if isinstance(one, EngineCall)
}


@cache
def registry() -> Registry:
    return Registry((*BUILT_INS, *EXTENSIONS))


def taken(function: Callable[..., Any], *, leaving: int = 0) -> list[tuple[str, object]]:
    """Return what a function takes, by name, with what stands for what is left out."""
    return [(one.name, one.default) for one in list(inspect.signature(function).parameters.values())[leaving:]]


def test_many_operations_are_stated() -> None:
    assert len(STATED) > 40
    assert len(STATED) == sum(isinstance(one, EngineCall) for module in MODULES for one in vars(module).values())


@pytest.mark.parametrize("name", STATED)
def test_an_operation_takes_what_it_is_stated_to_take(name: str) -> None:
    declared = registry().operations[name]
    # The first argument of what is declared is who asks.
    assert taken(declared.run, leaving=1) == taken(STATED[name].stated)


def test_whoever_calls_operations_loads_nothing_of_the_engine() -> None:
    names = ", ".join(module.__name__ for module in MODULES)
    script = f"import sys, {names}; print(*(one for one in sys.modules if one.startswith('sublet.messaging.')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[2] for name in done.stdout.split()}
    assert loaded == {"calls"}
