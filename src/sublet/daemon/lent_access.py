"""The access that one delegation gives: its credential, its view, the way to it, and the audit once it is cut."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import asyncssh
import structlog

from sublet.daemon.journal import Journal
from sublet.daemon.keeper import DelegationKeeper
from sublet.daemon.models import Usage
from sublet.daemon.network import is_loopback
from sublet.daemon.ports import PeerAddress, PeerLink
from sublet.daemon.reports import audit_view
from sublet.daemon.times import rfc3339
from sublet.protocol.errors import SubletError
from sublet.protocol.lifecycle import DelegationEvent
from sublet.protocol.messages import Accept, ActiveLease, DataPath, Endpoint, Mount, Start, StartExtension
from sublet.workspace.admission import AdmissionLimits
from sublet.workspace.audit import Auditor
from sublet.workspace.locks import DirectoryLocks
from sublet.workspace.model import Export, LeaseUsage
from sublet.workspace.rules import Rules
from sublet.workspace.sftp_listener import DataPlane

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DelegatorTools:
    """What every delegation works with; the composition root makes it once."""

    journal: Journal
    data_plane: DataPlane
    link: PeerLink
    auditor: Auditor
    locks: DirectoryLocks
    limits: Callable[[], AdmissionLimits]


class LentAccess:
    """What the peer of one delegation may reach, from START until it is settled."""

    def __init__(self, keeper: DelegationKeeper, peer: PeerAddress, rules: Rules, tools: DelegatorTools) -> None:
        self._keeper = keeper
        self._peer = peer
        self._rules = rules
        self._tools = tools
        self._usage = LeaseUsage()
        self._data_path: DataPath = "direct"

    @property
    def _root(self) -> Path:
        return Path(self._keeper.record.workspace)

    async def baseline(self) -> None:
        """Record what the directory holds before the lease."""
        snapshot = await asyncio.to_thread(self._tools.auditor.baseline, self._root, self._rules)
        await self._keeper.note(snapshot=snapshot)

    async def open(self, accept: Accept, ttl_seconds: int) -> Start:
        """Authorise the executor's key, or one made for it, only now that it has accepted (AWCP 3.2).

        Returns:
            The START that tells the executor how to get in.
        """
        record = self._keeper.record
        public, credential = _credential(accept.remote_constraints.public_key)
        expires_at = rfc3339(time.time() + ttl_seconds)
        await self._tools.journal.acquire(record.id, "lease", {"user": record.id})
        await self._keeper.advance(DelegationEvent.START, expires_at=expires_at)
        self._tools.data_plane.open(
            Export(
                lease_id=record.id,
                workspace=self._root,
                access_mode=record.access_mode,
                rules=self._rules,
                public_key=public,
                seconds=ttl_seconds,
                meta=_meta(self._keeper, expires_at),
            )
        )
        host, port = self._tools.data_plane.address
        self._data_path = self._first_path(host, accept)
        return Start(
            delegation_id=record.id,
            lease=ActiveLease(expires_at=expires_at, access_mode=record.access_mode),
            mount=Mount(
                endpoint=Endpoint(host=host, port=port, user=record.id), export_locator="/", credential=credential
            ),
            sublet=StartExtension(
                host_key=self._tools.data_plane.host_key_line,
                remaining_seconds=ttl_seconds,
                data_path=self._data_path,
            ),
        )

    async def dial(self, port: int) -> None:
        """Reach the executor from here and serve the view over that connection (DESIGN 4.6, behind NAT).

        Raises:
            SubletError: ``MOUNT_FAILED``.
        """
        self._data_path = "reverse"
        host = urlsplit(self._peer.a2a_url).hostname or ""
        await self._tools.data_plane.dial(host, port, self._keeper.record.id)

    def show_log(self, tail: bytes) -> None:
        """Put the end of the executor's output where the executor sees it too."""
        self._tools.data_plane.set_meta(self._keeper.record.id, "log.txt", tail)

    def usage(self) -> Usage:
        """Return what went over the data plane so far."""
        live = self._tools.data_plane.usage(self._keeper.record.id)
        return _usage_view(live or self._usage, self._data_path)

    def revoke(self, reason: str) -> None:
        """Cut access at once: when this returns, the credential is dead and every open handle with it."""
        self._usage = self._tools.data_plane.revoke(self._keeper.record.id, reason) or self._usage

    async def settle(self, reason: str) -> None:
        """Cut access and make the audit; doing it twice does nothing more."""
        self.revoke(reason)
        record = self._keeper.record
        await self._tools.journal.release_owned(record.id, "lease")
        if record.audit is not None or record.snapshot is None:
            return
        try:
            report = await asyncio.to_thread(
                self._tools.auditor.result,
                record.snapshot,
                self._root,
                self._rules,
                self._usage.touched,
                self._usage.touched_overflow,
            )
        except SubletError as error:
            log.warning("no audit could be made", delegation_id=record.id, reason=str(error))
            return
        await self._keeper.note(audit=audit_view(report), result_snapshot=report.result, usage=self.usage())

    def _first_path(self, sftp_host: str, accept: Accept) -> DataPath:
        """Tell which way to try first: a listener on loopback can't be reached from another machine."""
        peer_host = urlsplit(self._peer.a2a_url).hostname or ""
        out_of_reach = is_loopback(sftp_host) and not is_loopback(peer_host)
        return "reverse" if out_of_reach and accept.sublet.reverse is not None else "direct"


def _credential(public_key: str | None) -> tuple[str, str]:
    """Return the key line to authorise and what START says about it; a private key leaves only for plain AWCP peers."""
    if public_key is not None:
        key = asyncssh.import_public_key(public_key)
        return public_key, f"publickey:{key.get_fingerprint()}"
    private = asyncssh.generate_private_key("ssh-ed25519")
    return private.export_public_key().decode().strip(), private.export_private_key().decode()


def _meta(keeper: DelegationKeeper, expires_at: str) -> dict[str, bytes]:
    record = keeper.record
    task = {"delegation_id": record.id, "description": record.description, "prompt": record.request.prompt}
    lease = {"access_mode": record.access_mode, "expires_at": expires_at, "ttl_seconds": record.ttl_seconds}
    return {
        "task.json": json.dumps(task, ensure_ascii=False, indent=2).encode() + b"\n",
        "lease.json": json.dumps(lease, indent=2).encode() + b"\n",
        "log.txt": b"",
    }


def _usage_view(usage: LeaseUsage, data_path: DataPath) -> Usage:
    return Usage(
        bytes_read=usage.bytes_read,
        bytes_written=usage.bytes_written,
        operations=usage.operations,
        files_touched=len(usage.touched),
        data_path=data_path if usage.operations else None,
    )
