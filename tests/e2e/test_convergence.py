"""Short random histories with each kind of fault: what was acknowledged is on every member, equal, in the same order.

``benchmarks/convergence.py`` plays long ones, and many of them; ``--only KIND --seed S --seeds 1 --operations N`` plays
one of these again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from support.histories.generating import generate
from support.histories.playing import play
from support.histories.staging import in_this_process

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

PATIENCE_SECONDS: Final = 20.0
"""Longer than daemons may take, since what else runs here is not theirs: that it comes at all is what a test can say."""
OPERATIONS: Final = 24
PLAYED: Final = ()
NOT_YET: Final[dict[str, str]] = {}
"""Faults after which something is lost today, and what. A row is taken out when its history passes."""
