"""Looks at what one changed module settles at its import, without importing anew all that imports it.

``test_settled`` of a package compares what its modules settle with what they settled when that was last drawn. What it
would notice in the changed module itself is told by running that one text once more, among all other modules as they
are loaded: this takes a hundredth of the time. A mutant of which this shows nothing is tried anew (``anew``), by a
process that has imported nothing of ours, so that what imports some is imported here where it is needed.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from mutants.decides import PACKAGE, SETTLED, TESTS
from mutants.importing import name_of


def settling_test(file: str) -> Path | None:
    """Return the test module that holds what a module settles; None where none does."""
    package = _package(file)
    return None if package is None else TESTS.joinpath(*package.split("."), f"{SETTLED}.py")


def settles_otherwise(file: str, source: str) -> bool:
    """Tell whether a module with this text can't be run, or settles something else than is kept. Run it in a fork.

    Args:
        file: below the package.
        source: its text.
    """
    from support.settled import of_module, written

    name, package = name_of(file), _package(file)
    before = {} if package is None else _kept(package).get(name.removeprefix("sublet."), {})
    try:
        lines = dict(of_module(_run(name, str(PACKAGE / file), source)))
    except Exception:
        return True
    found: dict[str, Any] = json.loads(written({name: lines}))[name]
    return found != before


def _run(name: str, path: str, source: str) -> ModuleType:
    loaded = sys.modules[name]
    module = ModuleType(name)
    for key in ("__file__", "__package__", "__spec__", "__loader__", "__path__"):
        if key in vars(loaded):
            setattr(module, key, vars(loaded)[key])
    sys.modules[name] = module
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    return module


@cache
def _kept(package: str) -> dict[str, dict[str, Any]]:
    from support.settled import kept

    return kept(package)


def _package(file: str) -> str | None:
    from support.settled import PACKAGES

    return next((one for one in PACKAGES if name_of(file).startswith(f"sublet.{one}.")), None)
