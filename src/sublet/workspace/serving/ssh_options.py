"""What all SSH connections of the data plane have in common."""

from __future__ import annotations

from typing import Final

import asyncssh

from sublet.workspace.serving.login import CIPHERS, KEY_EXCHANGES, LOGIN_SECONDS

_KEEPALIVE_SECONDS: Final = 6
"""More than between two of a client's own: who lives is never asked."""
_KEEPALIVE_UNANSWERED: Final = 2
EXECUTOR_LOSS_SECONDS: Final = _KEEPALIVE_SECONDS * (_KEEPALIVE_UNANSWERED + 1)
"""An executor that is silent this long is gone: its connection ends."""


def ssh_options(host_key: asyncssh.SSHKey) -> asyncssh.SSHServerConnectionOptions:
    """Return the options of every connection; making them takes milliseconds, so that it is done once.

    Args:
        host_key: the daemon's SSH host key.
    """
    return asyncssh.SSHServerConnectionOptions(
        server_host_keys=[host_key],
        kex_algs=list(KEY_EXCHANGES),
        encryption_algs=list(CIPHERS),
        compression_algs=["none"],
        login_timeout=LOGIN_SECONDS,
        keepalive_interval=_KEEPALIVE_SECONDS,
        keepalive_count_max=_KEEPALIVE_UNANSWERED,
        allow_pty=False,
        allow_scp=False,
        agent_forwarding=False,
        x11_forwarding=False,
        line_editor=False,
        gss_host=None,
    )
