"""Accounts over random histories: a name is one key's at one time, and is never another's without the old key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.messaging.relay.accounts import RESERVED, Account, Accounts, is_name
from sublet.protocol.relay.errors import RelayCode, RelayRefusal

KEYS = [bytes([number]) * 32 for number in range(4)]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["register", "rotate", "revoke"]), st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 3)
    ),
    max_size=40,
)


@given(STEPS)
def test_a_name_is_one_keys_and_a_key_has_one_name(steps: list[tuple[str, str, int, int]]) -> None:
    accounts = Accounts("relay.test")
    owner: dict[str, bytes] = {}
    revoked: set[str] = set()
    for what, name, one, other in steps:
        before = accounts.get(name)
        try:
            if what == "register":
                account = accounts.registered(name, KEYS[one], 7)
            elif what == "rotate":
                account = accounts.rotated(name, KEYS[one], KEYS[other])
            else:
                account = accounts.revoked(name)
        except RelayRefusal:
            assert accounts.get(name) == before
            continue
        if what == "rotate":
            assert owner[name] == KEYS[one], "only the old key gives a name away"
        if what == "register" and name in owner:
            assert owner[name] == KEYS[one]
            assert name not in revoked
        accounts.put(account)
        owner[name] = account.key
        if account.revoked:
            revoked.add(name)
        assert accounts.get(name) == account
        living = [one for one in accounts.all() if not one.revoked]
        assert len({one.key for one in living}) == len(living)
        for each in living:
            assert accounts.of_node(each.node_id) == each
        again = Accounts("relay.test", accounts.all())
        assert again.all() == accounts.all()
    assert {one.name for one in accounts.all() if one.revoked} == revoked


def test_refusals_have_the_codes_of_the_specification() -> None:
    accounts = Accounts("relay.test", [Account("alice", KEYS[0], 1, 5), Account("gone", KEYS[1], 2, 5, revoked=True)])

    def code(call: object) -> RelayCode:
        with pytest.raises(RelayRefusal) as refused:
            call()  # type: ignore[operator]
        return refused.value.code

    assert code(lambda: accounts.registered("alice", KEYS[2], 9)) is RelayCode.ENTITY_EXISTS
    assert code(lambda: accounts.registered("other", KEYS[0], 9)) is RelayCode.CONFLICT
    assert code(lambda: accounts.registered("gone", KEYS[1], 9)) is RelayCode.REVOKED
    assert code(lambda: accounts.registered("gone", KEYS[2], 9)) is RelayCode.ENTITY_EXISTS
    assert code(lambda: accounts.require("nobody", KEYS[0])) is RelayCode.ENTITY_NOT_FOUND
    for name in ("", "Alice", "a/b", "a:b", "x" * 65, "@a", *RESERVED):
        assert not is_name(name, "relay.test")
        assert code(lambda name=name: accounts.registered(name, KEYS[2], 9)) is RelayCode.INVALID_ENTITY_ID
    assert accounts.registered("alice", KEYS[0], 9).registered_at == 5
    assert len(accounts) == 2
