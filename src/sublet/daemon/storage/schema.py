"""The tables of the daemon's database. A change of them raises ``SCHEMA_VERSION`` and adds a migration."""

from __future__ import annotations

from typing import Final

from sublet.migrations.schema import Migration, Schema, Tables

APPLICATION_ID = 0x53756274
"""``Subt``: tells our database from any other SQLite file."""
SCHEMA_VERSION = 11

_OFFICES = (
    "CREATE TABLE offices (id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, created_at TEXT NOT NULL) STRICT",
    # One row per name in an office; ``hash`` is the digest of the token with which it joins.
    """CREATE TABLE office_tokens (
        hash BLOB PRIMARY KEY, office_id TEXT NOT NULL, role TEXT NOT NULL, name TEXT NOT NULL,
        created_at TEXT NOT NULL, UNIQUE (office_id, name)
    ) STRICT""",
)

_TABLES = (
    # One row per delegation of ours; ``record`` is the JSON of DelegationRecord.
    """CREATE TABLE delegations (
        id TEXT PRIMARY KEY, state TEXT NOT NULL, caller TEXT NOT NULL, idempotency_key TEXT, record TEXT NOT NULL,
        created_at TEXT NOT NULL, updated_at TEXT NOT NULL
    ) STRICT, WITHOUT ROWID""",
    "CREATE UNIQUE INDEX delegation_key ON delegations (caller, idempotency_key) WHERE idempotency_key IS NOT NULL",
    "CREATE INDEX delegation_age ON delegations (created_at)",
    # One row per delegation of a peer's; ``record`` is the JSON of AssignmentRecord.
    """CREATE TABLE assignments (
        id TEXT PRIMARY KEY, state TEXT NOT NULL, peer TEXT NOT NULL, record TEXT NOT NULL,
        created_at TEXT NOT NULL, updated_at TEXT NOT NULL
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX assignment_age ON assignments (created_at)",
    # AUTOINCREMENT, since a cursor must never meet the number of a pruned event again.
    """CREATE TABLE events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, kind TEXT NOT NULL, delegation_id TEXT,
        session_id TEXT, agent_id TEXT, provider_session_id TEXT, request_id TEXT, route_decision TEXT,
        causation_id INTEGER, data TEXT NOT NULL
    ) STRICT""",
    "CREATE INDEX event_delegation ON events (delegation_id, seq)",
    "CREATE INDEX event_session ON events (session_id, seq) WHERE session_id IS NOT NULL",
    "CREATE INDEX event_request ON events (request_id, seq) WHERE request_id IS NOT NULL",
    # What later events of a delegation follow from; few of its many events.
    """CREATE INDEX event_turn ON events (delegation_id, seq)
        WHERE kind IN ('delegation_state', 'assignment_state', 'delegation_follow_up')""",
    # What events refer to by digest, packed; ``last_event`` is about the newest that does, and goes with it.
    """CREATE TABLE documents (
        digest TEXT PRIMARY KEY, packed BLOB NOT NULL, bytes INTEGER NOT NULL, last_event INTEGER NOT NULL
    ) STRICT""",
    "CREATE INDEX document_age ON documents (last_event)",
    # What was acquired and, while ``released_at`` is null, has to be given back.
    """CREATE TABLE resources (
        id INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, kind TEXT NOT NULL, detail TEXT NOT NULL,
        acquired_at TEXT NOT NULL, released_at TEXT
    ) STRICT""",
    "CREATE INDEX resource_open ON resources (owner, kind) WHERE released_at IS NULL",
    """CREATE TABLE peers (
        name TEXT PRIMARY KEY, node_id TEXT NOT NULL UNIQUE, public_key BLOB NOT NULL, a2a_url TEXT,
        tls_certificate TEXT, paired_at TEXT NOT NULL
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE pair_tokens (
        id_hash BLOB PRIMARY KEY, mac_key BLOB NOT NULL, expires_at REAL NOT NULL, attempts INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE tokens (
        name TEXT PRIMARY KEY, hash BLOB NOT NULL UNIQUE, created_at TEXT NOT NULL, expires_at REAL
    ) STRICT, WITHOUT ROWID""",
    "CREATE TABLE nonces (hash BLOB PRIMARY KEY, at INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE TABLE lend_roots (path TEXT PRIMARY KEY, added_at TEXT NOT NULL) STRICT, WITHOUT ROWID",
    # One row: the head of the audit log, the last entry that retention has removed, and whether a stop in order has
    # left the head as the last entry of all.
    """CREATE TABLE audit_log (
        id INTEGER PRIMARY KEY CHECK (id = 1), seq INTEGER NOT NULL, hash TEXT NOT NULL, anchor_seq INTEGER NOT NULL,
        anchor_hash TEXT NOT NULL, closed INTEGER NOT NULL
    ) STRICT""",
    # Questions to a person; ``context`` is JSON of what else is shown. ``digest`` is that of ``arguments``, ``event``
    # the number of the event that asked.
    """CREATE TABLE approvals (
        id TEXT PRIMARY KEY, state TEXT NOT NULL, agent TEXT NOT NULL, tool TEXT NOT NULL, digest TEXT NOT NULL,
        scope TEXT NOT NULL, arguments TEXT NOT NULL, context TEXT NOT NULL, created_at REAL NOT NULL,
        expires_at REAL NOT NULL, ends_at REAL NOT NULL, decided_at REAL, decided_by TEXT, event INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID""",
    "CREATE UNIQUE INDEX approval_call ON approvals (agent, tool, digest, scope) WHERE state = 'pending'",
    "CREATE INDEX approval_age ON approvals (created_at)",
    # ``conditions`` is JSON of globs by attribute; without a digest, they are what a call must satisfy.
    """CREATE TABLE grants (
        id TEXT PRIMARY KEY, agent TEXT NOT NULL, tool TEXT NOT NULL, digest TEXT, conditions TEXT NOT NULL,
        scope TEXT NOT NULL, issued_by TEXT NOT NULL, issued_at REAL NOT NULL, boot TEXT NOT NULL,
        issued_up REAL NOT NULL, expires_at REAL NOT NULL, max_uses INTEGER NOT NULL,
        remaining INTEGER NOT NULL CHECK (remaining BETWEEN 0 AND max_uses), revoked_at REAL, approval_id TEXT
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX grant_call ON grants (agent, tool)",
    # One row per use, written before the tool acts; without ``outcome`` nobody knows yet what came of it.
    """CREATE TABLE grant_uses (
        id INTEGER PRIMARY KEY AUTOINCREMENT, grant_id TEXT NOT NULL REFERENCES grants (id) ON DELETE CASCADE,
        call_id TEXT NOT NULL, event INTEGER NOT NULL, delegation_id TEXT, used_at REAL NOT NULL, outcome TEXT
    ) STRICT""",
    "CREATE INDEX grant_use ON grant_uses (grant_id)",
    # One row, where there is an approver: ``sealed`` is the private key, encrypted by the passphrase.
    """CREATE TABLE approver (
        id INTEGER PRIMARY KEY CHECK (id = 1), public_key BLOB, sealed TEXT, made_at REAL, reset_at REAL
    ) STRICT""",
    *_OFFICES,
)


def _closed_to_before(_: Tables) -> None:
    """Change nothing but the version: rows written from now on may have fields that version 9 refuses.

    Version 9 would take such a row for a damaged one. From this version on a field that is not known is ignored
    (``stored_parts.Stored``), so that a new one with a default needs no migration.
    """


def _offices(tables: Tables) -> None:
    """Add the tables of offices, which are empty."""
    tables.execute(
        "CREATE TABLE offices (id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, created_at TEXT NOT NULL) STRICT"
    )
    tables.execute(
        """CREATE TABLE office_tokens (
        hash BLOB PRIMARY KEY, office_id TEXT NOT NULL, role TEXT NOT NULL, name TEXT NOT NULL,
        created_at TEXT NOT NULL, UNIQUE (office_id, name)
    ) STRICT"""
    )


MIGRATIONS: Final = (
    Migration(10, "delegations may have fields that older versions refuse", _closed_to_before),
    Migration(11, "keep offices and the digests of their tokens", _offices),
)
"""All steps from version 9 on, the first that a release had."""

SCHEMA: Final = Schema("the daemon's database", SCHEMA_VERSION, _TABLES, MIGRATIONS, application_id=APPLICATION_ID)
