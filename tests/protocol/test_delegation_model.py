"""Both cores against each other, in thousands of schedules, with the invariants of ``docs/invariants.md`` in each.

The channel loses, doubles, reorders and delays; either side is killed at any output and comes back with what it had
journalled; journals fail; policy denies; people cancel, extend, say more and look. ``mutations.toml``
shows that the checks bite: each of them is one wrong line in a core, and a schedule finds every one.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

import pytest

from sublet.protocol import assignment, delegation
from sublet.protocol.lifecycle import IllegalTransition
from support import delegation_model
from support.budgets import examples
from support.delegation_model.schedule import play
from support.delegation_model.world import Violation, Weather

SCHEDULES = 1_000
"""Of each weather, at night; in other runs as many as ``support.budgets`` says."""
WEATHERS = {
    "calm": Weather(),
    "channel": Weather(lose=0.2, double=0.2, slow=0.2),
    "kills": Weather(kill=0.02),
    "journal": Weather(fail=0.05),
    "policy": Weather(deny=0.2, slow=0.1),
    "lies": Weather(lie=0.3, double=0.1),
    "all": Weather(lose=0.1, double=0.1, slow=0.1, kill=0.02, fail=0.02, deny=0.1, lie=0.05),
}


@pytest.mark.parametrize("name", WEATHERS)
def test_every_schedule_keeps_the_invariants(name: str) -> None:
    steps = outputs = 0
    for seed in range(examples(SCHEDULES)):
        world = play(seed, WEATHERS[name])
        steps += world.steps.total()
        outputs += world.outputs
    print(f"{name}: {examples(SCHEDULES)} schedules, {steps} steps, {outputs} outputs")
    assert steps > 10 * examples(SCHEDULES)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("name", ["calm", "channel"])
def test_a_kill_at_each_output_loses_nothing(seed: int, name: str) -> None:
    """Each output of a schedule is the last one of a process once, on either side."""
    weather = WEATHERS[name]
    for number in range(1, play(seed, weather).outputs + 1):
        play(seed, replace(weather, kill_at=number))


class Mutation(NamedTuple):
    """One wrong line: ``old`` in the source of ``module`` becomes ``new``."""

    what: str
    module: ModuleType
    old: str
    new: str


_PARTS = {
    assignment: ("prompts", "granting", "phases", "ending", "opening", "running", "core"),
    delegation: ("agreement", "phases", "steering", "ending", "opening", "core"),
}
"""The modules that decide, each after those whose names it has imported."""
_MODULES = {
    f"{package.__name__.removeprefix('sublet.protocol.')}.{name}": importlib.import_module(f"{package.__name__}.{name}")
    for package, names in _PARTS.items()
    for name in names
}
_FILE = Path(delegation_model.__path__[0]) / "mutations.toml"
MUTATIONS = [
    Mutation(one["what"], _MODULES[one["module"]], one["old"], one["new"])
    for one in tomllib.loads(_FILE.read_text())["mutation"]
]


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    """Run the cores with one wrong line."""
    file = mutation.module.__file__
    assert file is not None
    source = Path(file).read_text()
    assert source.count(mutation.old) == 1, f"{mutation.what}: {source.count(mutation.old)} times {mutation.old!r}"
    parts = list(_MODULES.values())
    try:
        for part in parts:
            text = source.replace(mutation.old, mutation.new) if part is mutation.module else None
            _load(part, text)
        yield
    finally:
        for part in parts:
            _load(part, None)


@cache
def _compiled(source: str, file: str) -> CodeType:
    """Return the code of a module, which is the same for all mutations of others."""
    return compile(source, file, "exec")


def _load(module: ModuleType, text: str | None) -> None:
    assert module.__file__ is not None
    source = Path(module.__file__).read_text() if text is None else text
    before = dict(module.__dict__)
    exec(_compiled(source, module.__file__), module.__dict__)
    for name, old in before.items():
        new = module.__dict__[name]
        if isinstance(old, type) and isinstance(new, type) and new.__module__ == module.__name__:
            # Others know this class already: it gets the new methods.
            for method, function in vars(new).items():
                if callable(function) and not method.startswith("__"):
                    setattr(old, method, function)
            module.__dict__[name] = old


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.what)
def test_a_wrong_line_is_found(mutation: Mutation) -> None:
    with mutated(mutation):
        for seed in range(SCHEDULES):
            for weather in WEATHERS.values():
                try:
                    play(seed, weather)
                except (Violation, IllegalTransition):
                    return
    pytest.fail("no schedule finds it")
