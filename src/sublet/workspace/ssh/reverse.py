"""The executor's side of a reverse connection: who dials us names the lease, and gets to whoever expects it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sublet import deadlines
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.patterns import Pattern

PREAMBLE: Final = b"SUBLET-REVERSE "
"""Begins the one line that precedes SSH: ``SUBLET-REVERSE <lease_id>\\n``."""
MAX_PREAMBLE: Final = 128
MAX_EXPECTED: Final = 64

_LEASE_ID = Pattern(rb"[A-Za-z0-9._-]{1,100}\Z")


def pack_preamble(lease_id: str) -> bytes:
    """Return the preamble line for ``lease_id``.

    Raises:
        ValueError: the id has other characters than letters, digits, ``.``, ``_`` and ``-``, or is too long.
    """
    name = lease_id.encode("utf-8", "surrogatepass")
    if not _LEASE_ID.match(name):
        raise ValueError("not a lease id")
    return PREAMBLE + name + b"\n"


def parse_preamble(line: bytes) -> str | None:
    """Return the lease id of a preamble line, its newline included, or None where it is none."""
    if not line.startswith(PREAMBLE) or not line.endswith(b"\n"):
        return None
    name = line[len(PREAMBLE) : -1]
    return name.decode("ascii") if _LEASE_ID.match(name) else None


class Expectation:
    """One reverse connection that is waited for."""

    def __init__(self) -> None:
        self._delivered: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        self._taken = False

    async def wait(self, timeout: float) -> socket.socket:
        """Return the connected, non-blocking socket, which the caller owns from then on; SSH starts with the next byte.

        Args:
            timeout: seconds to wait at most.

        Raises:
            SubletError: ``MOUNT_FAILED`` when nobody dialled in time.
        """
        try:
            async with deadlines.timeout(timeout):
                sock = await asyncio.shield(self._delivered)
        except TimeoutError:
            raise SubletError(
                ErrorCode.MOUNT_FAILED,
                f"the delegator did not dial back within {timeout:g} seconds",
                "Check that the delegator can reach this daemon's SFTP address.",
            ) from None
        self._taken = True
        return sock

    def offer(self, sock: socket.socket) -> bool:
        """Deliver ``sock``, unless one was delivered already."""
        if self._delivered.done():
            return False
        self._delivered.set_result(sock)
        return True

    def close(self) -> None:
        """Close what was delivered and not taken."""
        if not self._delivered.done():
            self._delivered.cancel()
        elif not self._taken and not self._delivered.cancelled():
            self._delivered.result().close()


class ReverseAcceptor:
    """Hands incoming reverse connections to those who expect them; every other one is closed at once."""

    def __init__(self) -> None:
        self._expected: dict[str, Expectation] = {}

    @contextmanager
    def expect(self, lease_id: str) -> Iterator[Expectation]:
        """Accept one reverse connection for ``lease_id`` while the context lasts.

        Raises:
            SubletError: ``CONFLICT`` where it is expected already, ``UNAVAILABLE`` where too many are.
        """
        if lease_id in self._expected:
            raise SubletError(
                LocalCode.CONFLICT,
                "a reverse connection for this lease is being waited for already",
                "Wait for the first attempt to end.",
            )
        if len(self._expected) >= MAX_EXPECTED:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"more than {MAX_EXPECTED} reverse connections are being waited for",
                "Try again when some of the delegations have started.",
            )
        expectation = self._expected[lease_id] = Expectation()
        try:
            yield expectation
        finally:
            del self._expected[lease_id]
            expectation.close()

    def deliver(self, lease_id: str, sock: socket.socket) -> None:
        """Hand over ``sock``, or close it where nobody expects it (any more)."""
        expectation = self._expected.get(lease_id)
        if expectation is None or not expectation.offer(sock):
            sock.close()
