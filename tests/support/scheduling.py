"""Says which tests a worker gets together, so that none is left alone with a long module at the end.

Tests of a module that share what is costly to start stay together. So do those of a module that tests one package of
``src`` and starts no program, since each takes milliseconds. All others, which start daemons or programs of their own,
are given out one by one.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from support.quick import PACKAGES, TESTS, starts_programs

_SHARES: Final = re.compile(r"\bscope=\"(?:module|package|session)\"|^@(?:functools\.)?cache\b", re.MULTILINE)


class BySharing(LoadScopeScheduling):  # type: ignore[misc]  # xdist says nothing of types
    """Gives out whole modules where their tests share something, and single tests where they do not.

    After each test xdist counts all that a worker was ever given, and to give one out it looks through all there are:
    of many thousand tests that takes longer than they do. So what is over is forgotten, and numbers are looked up.
    """

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._numbers: dict[str, int] = {}

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forget a test that is over, and give its worker more where it has little left."""
        nodeid = self.registered_collections[node][item_index]
        scope, given = self._split_scope(nodeid), self.assigned_work[node]
        del given[scope][nodeid]
        if not given[scope]:
            del given[scope]
        self._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        if not self._numbers:  # all workers have collected the same, in one order
            self._numbers = {nodeid: number for number, nodeid in enumerate(self.registered_collections[node])}
        scope, unit = self.workqueue.popitem(last=False)
        self.assigned_work[node][scope] = unit
        node.send_runtest_some([self._numbers[nodeid] for nodeid in unit])

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if stays_together(file) else nodeid


@cache
def stays_together(file: str) -> bool:
    """Tell whether one worker is to run all tests of a module, whose path is relative to the checkout."""
    path = TESTS.parent / file
    inner = path.relative_to(TESTS).parts
    if len(inner) == 1 or _SHARES.search(path.read_text(encoding="utf-8")):
        return True
    return (PACKAGES / inner[0]).is_dir() and not starts_programs(path)
