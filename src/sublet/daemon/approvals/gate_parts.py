"""What the gates before calls share: that of an agent's run, and that of MCP hosts and people."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from sublet.daemon.approvals.approver import Approver
from sublet.daemon.approvals.grant_store import GrantStore
from sublet.daemon.approvals.questions import Questions
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.storage.journal import Journal


@dataclass(frozen=True, slots=True)
class GateParts:
    """What all gates share; the composition root makes it once."""

    gate: Gatekeeper
    journal: Journal
    grants: GrantStore
    questions: Questions
    approver: Approver
    clock: Callable[[], float] = time.time
