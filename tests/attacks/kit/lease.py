"""A lease without a network: its parts are asked directly, so that what they keep can be counted."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh

from sublet.workspace.serving.served_lease import ServedLease
from support.sftp_client import CoreClient, export

KEY = asyncssh.generate_private_key("ssh-ed25519")


@dataclass
class Opened:
    """A lease that is served, with one session, and where it lies."""

    lease: ServedLease
    client: CoreClient
    root: Path


@contextmanager
def opened(**changes: Any) -> Iterator[Opened]:
    """Serve an empty directory while the block runs."""
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(1) as threads:
        root = Path(name).resolve()
        (root / "lent").mkdir()
        lease = ServedLease(export(root / "lent", KEY, **changes), threads, root)
        client = CoreClient(lease.new_session())
        try:
            yield Opened(lease, client, root / "lent")
        finally:
            client.core.close()
            lease.close()
