"""Hypothesis strategies for AWCP messages and for JSON of every kind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import strategies as st

from sublet.protocol.bounds import MAX_TTL_SECONDS
from sublet.protocol.canonical import JsonValue
from sublet.protocol.codec import AnyMessage
from sublet.protocol.errors import ErrorCode
from sublet.protocol.messages import (
    Accept,
    AcceptExtension,
    ActiveLease,
    Done,
    DoneExtension,
    Endpoint,
    Error,
    ErrorExtension,
    Invite,
    InviteExtension,
    Mount,
    ProposedLease,
    RemoteConstraints,
    RemoteMount,
    Requirements,
    ReverseEndpoint,
    SandboxProfile,
    Start,
    StartExtension,
    Task,
    Workspace,
)

SAFE_INTEGER = 2**53 - 1

text = st.text(max_size=40)
names = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True)
delegation_ids = st.from_regex(r"dlg_[0-9a-f]{32}", fullmatch=True)
access_modes = st.sampled_from(["ro", "rw"])
ttls = st.integers(1, MAX_TTL_SECONDS)
ports = st.integers(1, 65535)
integers = st.integers(-SAFE_INTEGER, SAFE_INTEGER)
naturals = st.integers(0, SAFE_INTEGER)
zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
timestamps = st.datetimes(datetime(2000, 1, 2), datetime(2100, 1, 1), timezones=zones | st.just(UTC)).map(
    datetime.isoformat
)

invites = st.builds(
    Invite,
    delegation_id=delegation_ids,
    task=st.builds(Task, description=text, prompt=text),
    lease=st.builds(ProposedLease, ttl_seconds=ttls, access_mode=access_modes),
    workspace=st.builds(Workspace, export_name=text),
    requirements=st.builds(Requirements, transport=text),
    sublet=st.builds(InviteExtension, agent=st.none() | names, transports=st.lists(text, max_size=8)),
)
accepts = st.builds(
    Accept,
    delegation_id=delegation_ids,
    remote_mount=st.builds(RemoteMount, mount_point=text),
    remote_constraints=st.builds(
        RemoteConstraints,
        accepted_access_mode=st.none() | access_modes,
        max_ttl_seconds=st.none() | ttls,
        sandbox_profile=st.none()
        | st.builds(SandboxProfile, cwd_only=st.booleans(), allow_network=st.booleans(), allow_exec=st.booleans()),
        public_key=st.none() | text,
    ),
    sublet=st.builds(
        AcceptExtension,
        reverse=st.none() | st.builds(ReverseEndpoint, port=ports),
        sandbox_enforced=st.lists(text, max_size=8),
        entity=st.none() | st.from_regex(r"@[a-z0-9._-]{1,20}:[a-z0-9.-]{1,20}", fullmatch=True),
    ),
)
starts = st.builds(
    Start,
    delegation_id=delegation_ids,
    lease=st.builds(ActiveLease, expires_at=timestamps, access_mode=access_modes),
    mount=st.builds(
        Mount,
        transport=text,
        endpoint=st.builds(Endpoint, host=text, port=ports, user=text),
        export_locator=text,
        credential=text,
    ),
    sublet=st.builds(
        StartExtension,
        host_key=st.none() | text,
        remaining_seconds=st.none() | st.integers(0, MAX_TTL_SECONDS),
        data_path=st.sampled_from(["direct", "reverse"]),
        room_id=st.none() | st.from_regex(r"[0-9a-f-]{36}", fullmatch=True),
    ),
)
dones = st.builds(
    Done,
    delegation_id=delegation_ids,
    final_summary=text,
    highlights=st.lists(text, max_size=4),
    notes=text,
    sublet=st.builds(DoneExtension, exit_code=st.none() | integers),
)
errors = st.builds(
    Error,
    delegation_id=delegation_ids,
    code=st.sampled_from(ErrorCode),
    message=text,
    hint=text,
    sublet=st.builds(
        ErrorExtension,
        exit_code=st.none() | integers,
        reason=st.none() | text,
        retry_after_seconds=st.none() | naturals,
    ),
)
messages: st.SearchStrategy[AnyMessage] = st.one_of(invites, accepts, starts, dones, errors)

_scalars: st.SearchStrategy[JsonValue] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["INVITE", "ACCEPT", "START", "DONE", "ERROR", "PROGRESS", "1", "\ud800", "\x1b]0;x\x07"]),
)
_keys = st.text(max_size=10) | st.sampled_from(
    ["version", "type", "delegation_id", "task", "lease", "mount", "code", "message", "sublet", "signature", "value"]
)
any_json: st.SearchStrategy[JsonValue] = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_keys, inner, max_size=6), max_leaves=20
)
signable: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | integers | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=6),
    max_leaves=20,
)
