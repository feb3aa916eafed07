"""What becomes of invitations in tests that are about something else."""

from __future__ import annotations

from collections.abc import Collection

from sublet.messaging.membership.consent import Consent
from sublet.protocol.ezagent.ids import EntityId


class TakesAll:
    """Takes every room up by itself, as a daemon does of peers that its policy trusts so far."""

    def foresee(self, home: str) -> Consent:
        return Consent.ACCEPT

    async def decide(self, home: str, whom: Collection[EntityId]) -> Consent:
        return Consent.ACCEPT
