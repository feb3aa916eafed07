"""The terms of a lease: stated once, told everywhere, and ignored by nobody who relies on them."""

from __future__ import annotations

import json
import typing
from typing import Any

import pytest

from daemon.storage.test_stored import unset
from sublet.cli.options.lease import LeaseSaid
from sublet.cli.options.view import ViewOptions
from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.delegations import CreateDelegation, LeaseOptions
from sublet.daemon.lending.inviting import invitation
from sublet.daemon.lending.lease_meta import lease_json
from sublet.daemon.storage.stored_parts import StoredTerms
from sublet.mcp_server.arguments import Delegate
from sublet.protocol.lease_terms import LeaseTerms
from support.full_records import TERMS, full_delegation

NAMES = sorted(LeaseTerms.model_fields)


@pytest.mark.parametrize("name", NAMES)
def test_a_term_is_an_option_of_every_face_and_is_stored(name: str) -> None:
    for model in (LeaseOptions, CreateDelegation, Delegate, DelegationView, StoredTerms):
        assert name in model.model_fields
    assert any(name in typing.get_type_hints(declared) for declared in (LeaseSaid, ViewOptions))


def test_what_the_command_line_passes_on_as_it_is_given_are_fields_of_the_request() -> None:
    for declared in (LeaseSaid, ViewOptions):
        assert set(typing.get_type_hints(declared)) <= set(CreateDelegation.model_fields)


def test_all_terms_of_a_request_are_told_to_the_executor_its_agent_and_the_delegator() -> None:
    record = full_delegation()
    assert unset(LeaseTerms.of(record.request)) == []
    told = LeaseTerms(**TERMS)
    assert invitation(record).sublet.terms == told
    lease: dict[str, Any] = json.loads(lease_json(record))
    assert {name: lease[name] for name in NAMES} == {name: TERMS[name] for name in NAMES}
    assert lease["terms"] == told.term_lines()
    view = record.view(0.0)
    assert LeaseTerms.of(view) == told
    assert view.terms == told.term_lines()
    assert len(view.terms) == len(NAMES)


def test_a_lease_without_terms_says_nothing_of_them() -> None:
    record = full_delegation()
    plain = record.model_copy(
        update={"request": CreateDelegation(workspace_dir="/w", peer="bob", prompt="p"), "access_mode": "rw"}
    )
    lease = json.loads(lease_json(plain))
    assert not {"terms", *NAMES} & set(lease)
    assert plain.view(0.0).terms == []
