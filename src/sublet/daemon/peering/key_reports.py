"""Journals that somebody poses as a peer, within a bound."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import structlog
from anyio.abc import TaskGroup

from sublet.daemon.peering.peers import PeerStore
from sublet.protocol.errors import SubletError
from sublet.tasks import start_alone

MAX_KEY_REPORTS: Final = 64
"""Reports of a peer's changed key that may wait for the journal at once; more are only logged."""
EVENT_SECONDS: Final = 60.0
"""One event at most in this time tells of one peer, so that no stranger pushes other events out."""
MAX_NAMES: Final = 1_024
"""Peers of which is remembered when they were reported; there are at most 1,000."""

log = structlog.get_logger(__name__)


def key_reporter(
    peers: PeerStore, group: TaskGroup, clock: Callable[[], float] = time.monotonic
) -> Callable[[str, str], None]:
    """Return what journals that somebody poses as a peer; how often strangers try must not matter to us.

    Args:
        peers: journals it.
        group: runs that.
        clock: seconds that never go back.
    """
    pending = 0
    reported: dict[str, float] = {}

    async def report(name: str, fingerprint: str) -> None:
        nonlocal pending
        try:
            await peers.report_changed_key(name, fingerprint)
        except SubletError as error:
            log.error("a changed key could not be journalled", peer=name, reason=str(error))
        finally:
            pending -= 1

    def key_changed(node_id: str, fingerprint: str) -> None:
        nonlocal pending
        peer = peers.by_node_id(node_id)
        name = peer.name if peer else node_id
        log.warning("a peer's key has changed, or somebody poses as it", peer=name, fingerprint=fingerprint)
        now = clock()
        if now - reported.get(name, now - EVENT_SECONDS) < EVENT_SECONDS:
            return
        if pending < MAX_KEY_REPORTS:
            reported.pop(name, None)
            while len(reported) >= MAX_NAMES:
                del reported[next(iter(reported))]
            reported[name] = now
            pending += 1
            start_alone(group, "journalling a changed key", report, name, fingerprint)

    return key_changed
