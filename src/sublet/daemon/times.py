"""The time as the journal and the views write it. ``sublet.protocol.times`` has the form, and reads no clock."""

from __future__ import annotations

import time

from sublet.protocol.times import rfc3339_of


def rfc3339(at: float | None = None) -> str:
    """Return ``at`` (Unix seconds; now by default) as RFC 3339 in UTC with milliseconds."""
    return rfc3339_of(time.time() if at is None else at)
