"""Directories with a ``sitecustomize`` that Python loads as it starts: forks, which start no Python, load it too."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_PATH: Final = "PYTHONPATH"
_HOOK: Final = "sitecustomize"
_OWN: Final = frozenset(Path(__file__).with_name(name) for name in ("crash_site", "clock_site"))
"""They hold that file alone, and it does in a process that has loaded everything what it does in a new one."""


def is_forked_alike(environment: Mapping[str, str]) -> bool:
    """Tell whether a fork with this environment can be what a process with it would be: it brings no other modules."""
    return _PATH not in environment or Path(environment[_PATH]) in _OWN


def load_site(environment: Mapping[str, str]) -> None:
    """Do in this process, which has this environment, what Python would do as it starts."""
    if _PATH not in environment:
        return
    sys.path[:0] = environment[_PATH].split(os.pathsep)
    hook = Path(environment[_PATH]) / f"{_HOOK}.py"
    if not hook.exists():
        return
    spec = importlib.util.spec_from_file_location(_HOOK, hook)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[_HOOK] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
