"""Makes SSH connections faster where asyncssh is exactly the version that this was written for (see ``ssh.lane``).

Any other version, and any connection with other algorithms, is used as it is: correct as well, and only slower. Callers
need not know which: a ``ChannelPort`` serves both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, Protocol, cast

import asyncssh
from asyncssh.channel import SSHChannel
from asyncssh.crypto.cipher import GCMCipher
from asyncssh.encryption import GCMEncryption

from sublet.workspace.ssh import lane as ssh_lane
from sublet.workspace.ssh.lane import FastLane
from sublet.workspace.ssh.turns import Share, Turns

TUNED_VERSION: Final = "2.24.1"

SshConnection = asyncssh.SSHServerConnection | asyncssh.SSHClientConnection

_LANE: Final = "sublet_lane"
"""Under which asyncssh keeps a connection's lane for us."""
_GCM: Final = (b"aes128-gcm@openssh.com", b"aes256-gcm@openssh.com")


class ChannelPort(Protocol):
    """How a session sends, and how it learns that what arrived together is complete."""

    def write(self, data: bytes | memoryview) -> None:
        """Send ``data`` on the channel; it may change afterwards.

        Raises:
            BrokenPipeError: the channel is not open for sending.
        """

    def at_batch_end(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when all that arrived together has been delivered, which may be now."""


class _StockPort:
    """A channel of a connection that is not tuned."""

    def __init__(self, channel: SSHChannel[bytes]) -> None:
        self._channel = channel

    def write(self, data: bytes | memoryview) -> None:
        self._channel.write(bytes(data))

    def at_batch_end(self, callback: Callable[[], None]) -> None:
        callback()


class _FastPort:
    """A channel of a connection that is."""

    def __init__(self, channel: SSHChannel[bytes], lane: FastLane) -> None:
        self.write = functools.partial(lane.write, cast(ssh_lane.Channel, channel))
        self.at_batch_end = lane.at_batch_end


def tune(
    connection: SshConnection,
    admits: Callable[[int], bool] | None = None,
    share: Share | None = None,
) -> bool:
    """Make a connection of either side faster; to be called from its ``connection_made``.

    Args:
        connection: has a transport, and has neither sent nor received anything.
        admits: asked with the size of everything that arrives; where it says no, it has ended the connection.
        share: the caller's share of the loop; by default one of the connection's own.

    Returns:
        Whether it is tuned. Where it is not, nothing is changed, and nobody asks ``admits``.
    """
    if asyncssh.__version__ != TUNED_VERSION or not _fits(connection):
        return False
    lane = FastLane(connection, admits or _admits_all, share or Turns().share("", ""))
    connection.set_extra_info(**{_LANE: lane})
    return True


def missing() -> list[str]:
    """Return why connections are not made faster here; nothing where they are."""
    found = [] if asyncssh.__version__ == TUNED_VERSION else [f"version {TUNED_VERSION}"]
    return found if found or _ciphers_fit() else ["the AES-GCM ciphers"]


def port_of(channel: SSHChannel[bytes]) -> ChannelPort:
    """Return the fastest way to use ``channel``, which carries bytes and is open."""
    lane = channel.get_extra_info(_LANE)
    if not isinstance(lane, FastLane) or not _has(channel, ssh_lane.Channel):
        return _StockPort(channel)
    return _FastPort(channel, lane)


def _fits(connection: SshConnection) -> bool:
    """Tell whether all that a lane relies on is there, and only algorithms that it knows are on offer."""
    if not _has(connection, ssh_lane.Connection) or not _ciphers_fit():
        return False
    private = cast(ssh_lane.Connection, connection)
    ciphers, compressions = private._enc_algs, private._cmp_algs
    return private._transport is not None and set(ciphers) <= set(_GCM) and list(compressions) == [b"none"]


@functools.cache
def _ciphers_fit() -> bool:
    probe = GCMEncryption.new("aes128-gcm", bytes(16), bytes(12))
    if not _has(probe, ssh_lane.Encryption):
        return False
    cipher: object = cast(ssh_lane.Encryption, probe)._cipher
    return type(cipher) is GCMCipher and _has(cipher, ssh_lane.Cipher)


def _has(thing: object, parts: type) -> bool:
    """Tell whether ``thing`` has every attribute that ``parts`` declares."""
    return all(hasattr(thing, name) for name in parts.__annotations__)


def _admits_all(size: int) -> bool:
    return True
