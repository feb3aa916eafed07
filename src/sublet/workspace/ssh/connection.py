"""The executor's SSH connection to a delegator: the host key pinned, one key in memory, nothing of the user's own SSH.

The executor is the SSH client whichever side dialled (DESIGN 4.6): ``connect`` dials the delegator, ``connect_over``
takes a connection over which the delegator has already dialled us.
"""

from __future__ import annotations

import socket
from typing import Final

import asyncssh

from sublet import deadlines
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.text import clean_line
from sublet.workspace.export import MountTarget
from sublet.workspace.ssh.keys import read_public_key
from sublet.workspace.ssh.tuning import tune

KEEPALIVE_SECONDS = 4.0
KEEPALIVE_UNANSWERED = 2
LINK_LOSS_SECONDS = KEEPALIVE_SECONDS * (KEEPALIVE_UNANSWERED + 1)
"""A peer that is silent this long is gone: the connection ends, and with it every blocked call in the mount."""

# OpenSSH's clients would choose ChaCha20, which costs more than half the throughput where there is AES in hardware.
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
MAX_USER_CHARS = 128


FAILURES: Final = (OSError, asyncssh.Error, UnicodeDecodeError)
"""What asyncssh raises for what the other side does; the last one where its version is no ASCII."""


class _Client(asyncssh.SSHClient):
    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        tune(conn)


async def connect(target: MountTarget, key: asyncssh.SSHKey, timeout: float) -> asyncssh.SSHClientConnection:
    """Dial the delegator and log in.

    Args:
        target: where, as whom, and the only host key that is accepted.
        key: the lease's private key.
        timeout: seconds for all of it.

    Raises:
        SubletError: ``AUTH_FAILED`` where the host key or our key is refused, ``MOUNT_FAILED`` where the delegator is
            not reached (AWCP 4.5).
    """
    options = _options(target, key, timeout)
    where = f"{clean_line(target.host, 255)}:{target.port}"
    try:
        async with deadlines.timeout(timeout):
            return await asyncssh.connect(
                target.host, target.port, tunnel=None, config=None, options=options, known_hosts=_pinned(target)
            )
    except FAILURES as error:
        raise _failure(error, where) from error


async def connect_over(
    sock: socket.socket, target: MountTarget, key: asyncssh.SSHKey, timeout: float = LINK_LOSS_SECONDS
) -> asyncssh.SSHClientConnection:
    """Log in over ``sock``, which the delegator has connected to us: the same as ``connect`` from there on.

    The socket belongs to the connection from now on, and is closed where the login fails.

    Raises:
        SubletError: as for ``connect``.
    """
    try:
        options = _options(target, key, timeout)
        async with deadlines.timeout(timeout):
            return await asyncssh.run_client(sock, config=None, options=options, known_hosts=_pinned(target))
    except FAILURES as error:
        sock.close()
        raise _failure(error, "the lender's own connection") from error
    except BaseException:
        sock.close()
        raise


def _options(target: MountTarget, key: asyncssh.SSHKey, timeout: float) -> asyncssh.SSHClientConnectionOptions:
    if not 0 < len(target.user) <= MAX_USER_CHARS or not target.user.isprintable():
        raise SubletError(ErrorCode.AUTH_FAILED, "the lender named an unusable user", "Ask the lender to try again.")
    return asyncssh.SSHClientConnectionOptions(
        config=None,
        client_factory=_Client,
        username=target.user,
        client_keys=[key],
        agent_path=None,
        agent_forwarding=False,
        pkcs11_provider=None,
        known_hosts=_pinned(target),
        x509_trusted_certs=None,
        preferred_auth="publickey",
        password_auth=False,
        kbdint_auth=False,
        host_based_auth=False,
        gss_kex=False,
        gss_auth=False,
        encryption_algs=CIPHERS,
        compression_algs=("none",),
        x11_forwarding=False,
        env=None,
        send_env=None,
        connect_timeout=timeout,
        login_timeout=timeout,
        keepalive_interval=KEEPALIVE_SECONDS,
        keepalive_count_max=KEEPALIVE_UNANSWERED,
    )


def _pinned(target: MountTarget) -> tuple[list[asyncssh.SSHKey], list[asyncssh.SSHKey], list[asyncssh.SSHKey]]:
    try:
        return [read_public_key(target.host_key)], [], []
    except ValueError as error:
        raise SubletError(
            ErrorCode.AUTH_FAILED,
            "the host key that the lender sent can't be read, so the lender can't be recognised",
            "Both sides should run the same version; ask the lender to try again.",
        ) from error


def _failure(error: Exception, where: str) -> SubletError:
    reason = clean_line(str(error) or type(error).__name__, 300)
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return SubletError(
            ErrorCode.AUTH_FAILED,
            f"{where} does not have the host key that START pinned",
            "Somebody else may be answering there: check the lender's address before trying again.",
        )
    if isinstance(error, asyncssh.PermissionDenied):
        return SubletError(
            ErrorCode.AUTH_FAILED,
            f"{where} refused the lease's key: {reason}",
            "The lease may be over: ask for a new one.",
        )
    if isinstance(error, TimeoutError):
        reason = "no answer in time"
    return SubletError(
        ErrorCode.MOUNT_FAILED,
        f"the workspace could not be reached at {where}: {reason}",
        "Check that the lender's SFTP port is reachable from here, or let the lender dial (reverse data path).",
    )
