"""Records of which every field is set, each to something else than its default."""

from __future__ import annotations

from typing import Any

from sublet.daemon.storage.records import AssignmentRecord, DelegationRecord

AT = "2026-11-29T02:47:43.378Z"
SIGNATURE = {"key": "a2V5", "recipient": "SHA256:x", "nonce": "n", "at": 7, "value": "dmFsdWU="}
ERROR = {"code": "EXPIRED", "message": "m", "hint": "h", "from_peer": True, "retry_after_seconds": 3}
TERMS: dict[str, Any] = {
    "keep_all": True,
    "no_delete": True,
    "writable": ["src"],
    "deny": ["shell.exec"],
    "only": ["file.*"],
}
"""Each term of a lease, which both sides keep."""
CHAIN = {"execution_chain": ["coder@node-a"], "lease_id": "l", "ttl": 9}
CHANGES: dict[str, Any] = {
    **{name: n for n, name in enumerate(("added", "changed", "deleted", "renamed", "mode_changed"), 1)},
    "lines_added": 6,
    "lines_deleted": 7,
    "directories_added": 8,
    "directories_deleted": 9,
    "directories_mode_changed": 10,
    "status": "applied",
    "branch": "b",
    "branch_error": "e",
    "branch_left_out": ["x"],
}
ACCEPT = {
    "delegation_id": "dlg_1",
    "remote_mount": {"mount_point": "/m"},
    "remote_constraints": {
        "accepted_access_mode": "ro",
        "max_ttl_seconds": 50,
        "sandbox_profile": {"cwd_only": True, "allow_network": False, "allow_exec": True},
        "public_key": "ssh-ed25519 AAAA",
    },
    "sublet": {
        "signature": SIGNATURE,
        "reverse": {"port": 22},
        "sandbox_enforced": ["memory"],
        "transport": "archive",
        "renewable": True,
        "entity": "@agent.shell:node-a",
    },
}
AUDIT: dict[str, Any] = {
    **{name: [name] for name in ("added", "changed", "deleted", "mode_changed", "by_others", "not_kept")},
    **{name: [name] for name in ("refs_bring", "index_marks", "unaudited", "unaudited_why")},
    "counts": {"added": 1},
    "others_edits": [{"path": "p", "kept": "k", "overwritten": False}],
    "files": [
        {
            "path": "p",
            "change": "mode",
            "lines_added": 1,
            "lines_deleted": 2,
            "by": "other",
            "mode_before": "644",
            "mode_after": "755",
        }
    ],
    "directories": [{"path": "d/", "change": "mode", "by": "other", "mode_before": "755", "mode_after": "700"}],
    "directory_counts": {"mode": 1},
    "refs": [{"name": "refs/heads/x", "old": "a", "new": "b"}],
    "unaudited_count": 3,
    "lines_added": 4,
    "lines_deleted": 5,
    "truncated": True,
    "patch_truncated": True,
    "patch": "diff",
}


def full_delegation() -> DelegationRecord:
    """Return a delegation."""
    return DelegationRecord.model_validate(
        {
            "id": "dlg_1",
            "state": "completed",
            "caller": "human:",
            "request": {
                "workspace_dir": "/w",
                "peer": "bob/shell",
                "prompt": "p",
                "description": "d",
                "access_mode": "ro",
                "ttl_seconds": 60,
                "reveal": [".env"],
                "unlock": ["Makefile"],
                "include": ["a"],
                "exclude": ["b"],
                "git": "ro",
                "result_mode": "staged",
                "result_branch": "b",
                "resources": [{"name": "docs", "path": "/d", "access_mode": "rw"}],
                "transport": "archive",
                "max_total_bytes": 1,
                "max_files": 2,
                "max_file_bytes": 3,
                "require_enforced": ["memory"],
                **TERMS,
                "watch": True,
                "idempotency_key": "k",
                "wait_for_peer": True,
            },
            "peer": "bob",
            "peer_fingerprint": "SHA256:x",
            "agent": "shell",
            "resources": [{"name": "workspace", "path": "/w", "access_mode": "rw"}],
            "description": "d",
            "access_mode": "rw",
            "ttl_seconds": 60,
            "created_at": AT,
            "updated_at": AT,
            "chain": CHAIN,
            "expires_at": AT,
            "condition": {"kind": "queued", "detail": "d", "position": 2},
            "transport": "archive",
            "task_id": "t",
            "context_id": "c",
            "accept": ACCEPT,
            "room": {"room_id": "r", "created_ms": 5, "salt": "00", "entity": "@agent.shell:node-a"},
            "snapshots": {"workspace": "a"},
            "result_snapshots": {"workspace": "b"},
            "result": {
                "final_summary": "s",
                "highlights": ["h"],
                "notes": "n",
                "exit_code": 1,
                "change_set": CHANGES,
                "link_losses": 1,
                "interrupted_operations": 2,
                "prompts": [{"follow_up_id": "f", "state": "failed", "reason": "limit", "exit_code": 3}],
            },
            "error": ERROR,
            "hidden": ["h"],
            "unmountable": ["u"],
            "build_files": ["b"],
            "left_out": 4,
            "sandbox_enforced": ["memory"],
            "git_hidden": ["g"],
            "change_set": CHANGES,
            "returned": True,
            "left_behind": ["l"],
            "audit": AUDIT,
            "audit_error": ERROR,
            "usage": {
                "bytes_read": 1,
                "bytes_written": 2,
                "operations": 3,
                "files_touched": 4,
                "bytes_added": 5,
                "files_added": 6,
                "data_path": "direct",
            },
            "quota": {"max_total_bytes": 1, "max_files": 2, "max_file_bytes": 3},
            "follow_ups": [{"id": "f", "prompt": "p", "digest": "d", "state": "failed", "why": "w"}],
            "settled": True,
            "taken_back": True,
            "panel": {
                "id": "pnl_1",
                "to": "capability:x",
                "index": 1,
                "members": [{"delegation_id": "dlg_1", "address": "a@n", "peer": "p", "agent": "a", "why": "w"}],
                "check": "make",
                "check_seconds": 5,
                "stop": "first_pass",
                "max_agent_seconds": 9,
                "outcome": {"state": "failed", "seconds": 1.5, "exit_code": 2, "reason": "r", "output": "o"},
            },
            "generation": 3,
        }
    )


def full_assignment() -> AssignmentRecord:
    """Return an assignment."""
    return AssignmentRecord.model_validate(
        {
            "id": "dlg_1",
            "state": "error",
            "peer": "alice",
            "peer_fingerprint": "SHA256:y",
            "agent": "shell",
            "invite": {
                "delegation_id": "dlg_1",
                "task": {"description": "d", "prompt": "p"},
                "lease": {"ttl_seconds": 60, "access_mode": "ro"},
                "workspace": {"export_name": "w"},
                "requirements": {"transport": "archive"},
                "sublet": {
                    "signature": SIGNATURE,
                    "agent": "shell",
                    "transports": ["archive", "git"],
                    "result_mode": "staged",
                    "resources": [{"name": "docs", "access_mode": "ro"}],
                    "chain": CHAIN,
                    "require_enforced": ["memory"],
                    "terms": TERMS,
                },
            },
            "accept": ACCEPT,
            "mount_point": "/m",
            "created_at": AT,
            "updated_at": AT,
            "access_mode": "ro",
            "expires_at": AT,
            "generation": 2,
            "error": ERROR,
            "outcome": "limit",
            "exit_code": 9,
        }
    )
