"""Stops a daemon under test at one of its journal writes, so that a test can kill whatever it likes just then.

Python loads this file by itself in every process that has its directory on ``PYTHONPATH``, and ``support.sites`` in
every fork that has; there the store is loaded already. Only where the variable ``SUBLET_STOP_AT`` names a plan file
does it do anything: while that file exists, journal writes are counted from there on and their labels appended to
``<plan>.labels``; at the write whose number the plan names, or at one of the ``label`` that it names instead,
``<plan>.reached`` is made and the writing thread waits, holding the write before or after its commit, until
``<plan>.go`` appears or it is killed.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

MODULE = "sublet.daemon.storage.store"
WAIT_SECONDS = 60.0
_WRITE = re.compile(r"^\s*(INSERT(?: OR \w+)? INTO|UPDATE|DELETE FROM)\s+(\w+)", re.IGNORECASE)
_VALUES = re.compile(r"'(created|invited|accepted|started|running|completed|error|cancelled|expired|pending|active)'")
_KIND = re.compile(r"VALUES \('[^']*', '(\w+)'")


class _Stopper:
    """Counts the journal writes of this process and holds the one that the plan names."""

    def __init__(self, plan: Path) -> None:
        self._plan = plan
        self._count = 0
        self._number: int | None = None
        self._seen: list[str] = []
        self._due = False

    def commit(self, connection: sqlite3.Connection, group: Sequence[Any], commit: Callable[..., None]) -> None:
        """Commit ``group`` by ``commit``, stopping where the plan says so."""
        try:
            plan = json.loads(self._plan.read_text())
        except (FileNotFoundError, ValueError):
            self._count = 0
            commit(connection, group)
            return
        if plan["number"] != self._number:
            self._number, self._count = plan["number"], 0
        for job in group:
            job.work = self._watched(job.work, plan)
        self._due = False
        connection.set_trace_callback(self._seen.append)
        try:
            commit(connection, group)
        finally:
            connection.set_trace_callback(None)
        if plan["when"] == "after" and self._due:
            self._hold()

    def _watched(self, work: Callable[[sqlite3.Connection], Any], plan: dict[str, Any]) -> Callable[..., Any]:
        def watched(connection: sqlite3.Connection) -> Any:
            self._seen.clear()
            result = work(connection)
            self._count += 1
            label = _label(self._seen)
            with self._plan.with_suffix(".labels").open("a") as labels:
                labels.write(f"{label}\n")
            if self._count == plan["stop_at"] or label == plan.get("label"):
                self._due = True
                if plan["when"] == "before":
                    self._hold()
            return result

        return watched

    def _hold(self) -> None:
        told = self._plan.with_suffix(".reached")
        draft = told.with_suffix(".reaching")
        draft.write_text(str(os.getpid()))
        draft.rename(told)
        give_up = time.monotonic() + WAIT_SECONDS
        while not self._plan.with_suffix(".go").exists() and time.monotonic() < give_up:
            time.sleep(0.002)


def _label(statements: Sequence[str]) -> str:
    """Return what a write was about: its table and the state, kind or column that it set."""
    for statement in statements:
        if found := _WRITE.match(statement):
            table = found[2].lower()
            what = _KIND.search(statement) if table == "resources" else _VALUES.search(statement)
            return f"{table}:{what[1]}" if what else f"{table}:{found[1].split()[0].lower()}"
    return "nothing"


class _Loader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        _stop(module)


def _stop(module: ModuleType) -> None:
    """Let the commits of the store go by a stopper."""
    stopper = _Stopper(Path(os.environ["SUBLET_STOP_AT"]))
    commit = module.__dict__["_commit"]
    module.__dict__["_commit"] = lambda connection, group: stopper.commit(connection, group, commit)


class _Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> Any:
        spec = super().find_spec(fullname, path, target) if fullname == MODULE else None
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


if "SUBLET_STOP_AT" in os.environ and MODULE in sys.modules:
    _stop(sys.modules[MODULE])
elif "SUBLET_STOP_AT" in os.environ:
    sys.meta_path.insert(0, _Finder)
