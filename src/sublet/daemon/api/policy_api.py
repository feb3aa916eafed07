"""What policy and the audit log offer faces. Every method asks policy before it does anything."""

from __future__ import annotations

from typing import Protocol

from sublet.daemon.api.policy_models import AuditPage, AuditVerdict, ExplainRequest, Explanation, PolicyView
from sublet.policy.model import Subject


class PolicyApi(Protocol):
    """The operations around rules, decisions and their log."""

    async def show_policy(self, caller: Subject) -> PolicyView:
        """Return every rule and limit that holds now."""

    async def explain(self, request: ExplainRequest, caller: Subject) -> Explanation:
        """Answer a question as ``decide()`` would, and name what decided it; nothing is done or recorded.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` where there is no such kind of caller or action.
        """

    async def audit_entries(
        self, caller: Subject, *, cursor: int | None = None, limit: int = 100, timeout: float = 0
    ) -> AuditPage:
        """Return entries of the audit log after ``cursor``, waiting at most ``timeout`` seconds for the first.

        Without a cursor, the newest.
        """

    async def list_denials(self, caller: Subject, *, before: int | None = None, limit: int = 100) -> AuditPage:
        """Return what policy has denied or left to a person, the newest first.

        ``before`` is the cursor of an earlier page; a cursor of 0 says that nothing older is left.
        """

    async def verify_audit(self, caller: Subject) -> AuditVerdict:
        """Check the whole chain."""
