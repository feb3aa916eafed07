"""Says which tests a worker gets together, so that none is left alone with a long module at the end.

Tests of a module that share what is costly to start stay together. So do those of a module that tests one package of
``src``, since each takes milliseconds. All others, which start daemons of their own, are given out one by one.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from support.quick import PACKAGES, TESTS

_SHARES: Final = re.compile(r"\bscope=\"(?:module|package|session)\"|^@(?:functools\.)?cache\b", re.MULTILINE)


class BySharing(LoadScopeScheduling):  # type: ignore[misc]  # xdist says nothing of types
    """Gives out whole modules where their tests share something, and single tests where they do not."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if stays_together(file) else nodeid


@cache
def stays_together(file: str) -> bool:
    """Tell whether one worker is to run all tests of a module, whose path is relative to the checkout."""
    path = TESTS.parent / file
    inner = path.relative_to(TESTS).parts
    if len(inner) == 1 or (PACKAGES / inner[0]).is_dir():
        return True
    return _SHARES.search(Path(path).read_text(encoding="utf-8")) is not None
