"""Views of records: what a reader is told follows from the record and the clock alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.daemon.api.delegation_views import ConditionView, ResultView
from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.storage.records import DelegationRecord
from sublet.daemon.times import rfc3339
from sublet.protocol.lifecycle import DELEGATION_TABLE, DelegationState, is_terminal
from sublet.protocol.times import unix_seconds

NOW = 1_800_000_000.0


def a_record(**changes: object) -> DelegationRecord:
    return DelegationRecord.model_validate(
        {
            "id": "dlg_1",
            "caller": "human:",
            "request": CreateDelegation(workspace_dir="/w", peer="bob", prompt="p"),
            "peer": "bob",
            "agent": None,
            "resources": [{"name": "workspace", "path": "/w", "access_mode": "rw"}],
            "description": "p",
            "access_mode": "rw",
            "ttl_seconds": 60,
            "quota": {"max_total_bytes": 1, "max_files": 1, "max_file_bytes": 1},
            "created_at": rfc3339(NOW - 60),
            "updated_at": rfc3339(NOW - 60),
            **changes,
        }
    )


states = st.sampled_from(list(DelegationState))
ends = st.none() | st.floats(NOW - 100, NOW + 100).map(rfc3339)
results = st.none() | st.just(ResultView(final_summary="done"))


@given(state=states, expires_at=ends, result=results, later=st.floats(0, 1000))
def test_expiry_is_computed_on_every_read(
    state: DelegationState, expires_at: str | None, result: ResultView | None, later: float
) -> None:
    """Case C18: nobody has to have noticed the end of a lease for a reader to be told of it."""
    record = a_record(state=state, expires_at=expires_at, result=result)
    view = record.view(NOW)
    lapsed = (
        not is_terminal(DELEGATION_TABLE, state)
        and result is None
        and expires_at is not None
        and unix_seconds(expires_at) <= NOW
    )
    assert record.overdue(NOW) is lapsed
    assert view.state is (DelegationState.EXPIRED if lapsed else state)
    if lapsed:
        assert view.error is not None
        assert view.error.code == "EXPIRED"
    if view.remaining_seconds is not None:
        assert not is_terminal(DELEGATION_TABLE, view.state)
        assert 0 <= view.remaining_seconds <= 100
    # Once told, it stays true.
    if is_terminal(DELEGATION_TABLE, view.state):
        assert record.view(NOW + later).state is view.state


@pytest.mark.parametrize("state", [DelegationState.CREATED, DelegationState.INVITED, DelegationState.ACCEPTED])
def test_there_is_no_remaining_time_before_there_is_a_lease(state: DelegationState) -> None:
    assert a_record(state=state).view(NOW).remaining_seconds is None


def test_a_record_survives_the_disk() -> None:
    record = a_record(
        state=DelegationState.RUNNING,
        expires_at=rfc3339(NOW),
        condition=ConditionView(kind="queued", detail="wait", position=2),
    )
    assert DelegationRecord.model_validate_json(record.model_dump_json()) == record
    # Records of earlier versions lack what was added since.
    older = {key: value for key, value in record.model_dump().items() if key not in ("audit_error", "generation")}
    assert DelegationRecord.model_validate(older) == record
