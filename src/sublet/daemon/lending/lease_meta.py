"""What both sides are told of a lease: the files of ``/meta`` in the view, and the counters (DESIGN 4.6)."""

from __future__ import annotations

import json

from sublet.daemon.api.delegation_views import LeaseUsageView
from sublet.daemon.storage.records import DelegationRecord
from sublet.protocol.lease_terms import LeaseTerms
from sublet.protocol.messages import DataPath
from sublet.workspace.export import LeaseUsage
from sublet.workspace.quota import QuotaMet


def lease_meta(record: DelegationRecord) -> dict[str, bytes]:
    """Return the files of ``/meta`` in the executor's view, by their names."""
    task = {
        "delegation_id": record.id,
        "description": record.description,
        "prompt": record.request.prompt,
        "resources": [lent.model_dump(exclude={"path"}) for lent in record.resources],
    }
    return {
        "task.json": json.dumps(task, ensure_ascii=False, indent=2).encode() + b"\n",
        "lease.json": lease_json(record),
        "log.txt": b"",
    }


def lease_json(record: DelegationRecord, met: QuotaMet | None = None) -> bytes:
    """Return what the agent is told of its lease: how long, what it may add, and whether that was not enough."""
    lease: dict[str, object] = {
        "access_mode": record.access_mode,
        "expires_at": record.expires_at,
        "ttl_seconds": record.ttl_seconds,
    }
    if record.access_mode == "rw":
        terms = LeaseTerms.of(record.request)
        lease |= record.quota.model_dump() | terms.model_dump(exclude_defaults=True)
        if lines := terms.term_lines():
            lease["terms"] = lines
    if met is not None:
        lease["disk_full" if met.name == "disk" else "quota_exceeded"] = met.error().message
    return json.dumps(lease, indent=2).encode() + b"\n"


def usage_view(usage: LeaseUsage, data_path: DataPath) -> LeaseUsageView:
    """Return what went over the data plane, as it is shown."""
    return LeaseUsageView(
        bytes_read=usage.bytes_read,
        bytes_written=usage.bytes_written,
        operations=usage.operations,
        files_touched=usage.files_touched,
        bytes_added=usage.quota.bytes,
        files_added=usage.quota.files,
        data_path=data_path if usage.operations else None,
    )
