"""Which transports a delegation may use: what INVITE offers, and what ACCEPT may choose (AWCP 4.1, DESIGN 4.6)."""

from __future__ import annotations

from sublet.daemon.api.delegations import CreateDelegation
from sublet.protocol.bounds import TransportName
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Accept
from sublet.protocol.text import clean_line


def offered_transports(request: CreateDelegation) -> tuple[TransportName, ...]:
    """Return what is offered to the executor, the best first."""
    if request.transport != "auto":
        return (request.transport,)
    # Commits can't be merged file by file, so a repository that is lent for writing needs a mount.
    return ("sshfs",) if request.git == "rw" else ("sshfs", "archive")


def chosen_transport(request: CreateDelegation, accept: Accept) -> TransportName:
    """Return what the executor has chosen; a plain AWCP peer, which chooses nothing, mounts by sshfs.

    Raises:
        SubletError: ``DEP_MISSING`` for a transport that was not offered.
    """
    for transport in offered_transports(request):
        if transport == accept.sublet.transport:
            return transport
    raise SubletError(
        ErrorCode.DEP_MISSING,
        f"the executor wants transport {clean_line(accept.sublet.transport, 40)!r}, and "
        f"{' or '.join(offered_transports(request))} was offered",
        "Delegate with --transport sshfs to peers that know no other.",
    )
