"""Which transports INVITE offers for a delegation (AWCP 4.1, DESIGN 4.6); its core judges what ACCEPT chose."""

from __future__ import annotations

from sublet.daemon.api.delegations import CreateDelegation
from sublet.protocol.bounds import TransportName


def offered_transports(request: CreateDelegation) -> tuple[TransportName, ...]:
    """Return what is offered to the executor, the best first."""
    if request.transport != "auto":
        return (request.transport,)
    # Commits can't be merged file by file, so a repository that is lent for writing needs a mount; and a mount alone
    # asks before each name goes.
    return ("sshfs",) if request.git == "rw" or request.no_delete else ("sshfs", "archive")
