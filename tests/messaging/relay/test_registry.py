"""The desk over a real store and a real authority: what it gives, keeps, refuses and takes back."""

from __future__ import annotations

import sqlite3
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from sublet.messaging.relay import registry as registry_module
from sublet.messaging.relay.store import SqliteRelayStore
from sublet.protocol.canonical import canonical_json
from sublet.protocol.relay.errors import RelayCode, RelayRefusal
from sublet.protocol.relay.name_record import parse_name_record
from sublet.protocol.relay.requests import RequestAction
from support.relay_accounts import DOMAIN, Client, make_registry, register


def code(call: Any) -> RelayCode:
    with pytest.raises(RelayRefusal) as refused:
        call()
    return refused.value.code


def common_name(pem: str) -> str:
    found = x509.load_pem_x509_certificate(pem.encode()).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value)


def test_a_name_gets_a_slot_a_certificate_for_its_key_and_a_signed_record(tmp_path: Path) -> None:
    registry, alice = make_registry(tmp_path), Client("alice")
    told = registry.answer(RequestAction.REGISTER, alice.request())
    record = parse_name_record(canonical_json(told["record"]), registry.public_key)
    assert (record.entity_id, record.key, record.revoked) == (f"@alice:{DOMAIN}", alice.public, False)
    pem = str(told["certificate"])
    shown = x509.load_pem_x509_certificate(pem.encode())
    root = x509.load_pem_x509_certificate((tmp_path / "authority.pem").read_bytes())
    shown.verify_directly_issued_by(root)
    assert shown.public_key() == alice.tls.public_key()
    assert common_name(pem) == told["slot"]
    assert abs(shown.not_valid_after_utc.timestamp() - time.time() - 3_600) < 60
    account = registry.account_of(str(told["slot"]))
    assert account is not None
    assert account.name == "alice"
    assert registry.slot_of(alice.node) == told["slot"]
    assert registry.lookup("alice") == record
    assert code(lambda: registry.lookup("bob")) is RelayCode.ENTITY_NOT_FOUND


def test_a_request_counts_once_also_after_a_restart(tmp_path: Path) -> None:
    kept = SqliteRelayStore(tmp_path / "relay.db")
    registry, raw = make_registry(tmp_path, store=kept), Client("alice").request()
    registry.answer(RequestAction.REGISTER, raw)
    assert code(lambda: registry.answer(RequestAction.REGISTER, raw)) is RelayCode.INVALID_SIGNATURE
    kept.close()
    again = make_registry(tmp_path, store=SqliteRelayStore(tmp_path / "relay.db"))
    assert code(lambda: again.answer(RequestAction.REGISTER, raw)) is RelayCode.INVALID_SIGNATURE


def test_a_name_is_taken_by_the_first_and_kept_over_a_restart(tmp_path: Path) -> None:
    kept = SqliteRelayStore(tmp_path / "relay.db")
    registry, alice, eve = make_registry(tmp_path, store=kept), Client("alice"), Client("alice")
    register(registry, alice)
    assert code(lambda: register(registry, eve)) is RelayCode.ENTITY_EXISTS
    kept.close()
    again = make_registry(tmp_path, store=SqliteRelayStore(tmp_path / "relay.db"))
    assert code(lambda: register(again, eve)) is RelayCode.ENTITY_EXISTS
    assert register(again, alice)["slot"] == alice.slot
    renewed = again.answer(RequestAction.RENEW, alice.request(RequestAction.RENEW))
    assert renewed["slot"] == alice.slot
    assert code(lambda: again.answer(RequestAction.RENEW, eve.request(RequestAction.RENEW))) is RelayCode.ENTITY_EXISTS


def test_a_certificate_needs_proof_of_its_key(tmp_path: Path) -> None:
    registry, alice = make_registry(tmp_path), Client("alice")
    pem = alice.csr()
    middle = pem.splitlines()
    middle[-2] = middle[-2][:-8] + ("A" * 8 if not middle[-2].endswith("A" * 8) else "B" * 8)
    for csr in ("", "x", "\n".join(middle), pem.replace("REQUEST", "THING")):
        assert code(lambda csr=csr: registry.answer(RequestAction.REGISTER, alice.request(csr=csr))) is (
            RelayCode.VALIDATION_ERROR
        )
    assert registry.accounts.get("alice") is None
    assert registry.slots.taken() == 0


def test_a_rotation_moves_the_name_to_another_key_and_another_slot(tmp_path: Path) -> None:
    registry, alice, new = make_registry(tmp_path), Client("alice"), Client("alice")
    cut: list[str] = []
    registry.cut.append(cut.append)
    register(registry, alice)
    told = registry.answer(RequestAction.ROTATE, alice.request(RequestAction.ROTATE, new=new.key))
    assert told["slot"] != alice.slot, "the old key's certificate still has the name of the old one"
    assert cut == [alice.slot]
    assert registry.account_of(alice.slot) is None
    assert registry.lookup("alice").key == new.public
    assert registry.lookup("alice").version == 2
    assert code(lambda: register(registry, alice)) is RelayCode.ENTITY_EXISTS
    assert code(lambda: registry.answer(RequestAction.ROTATE, alice.request(RequestAction.ROTATE))) is (
        RelayCode.VALIDATION_ERROR
    )


def test_who_is_revoked_is_cut_keeps_the_name_and_gets_nothing_more(tmp_path: Path) -> None:
    registry, alice = make_registry(tmp_path), Client("alice")
    cut: list[str] = []
    registry.cut.append(cut.append)
    register(registry, alice)
    assert code(lambda: registry.answer(RequestAction.REVOKE, Client("alice").request(RequestAction.REVOKE))) is (
        RelayCode.ENTITY_EXISTS
    )
    registry.answer(RequestAction.REVOKE, alice.request(RequestAction.REVOKE))
    assert cut == [alice.slot]
    assert registry.account_of(alice.slot) is None
    assert registry.lookup("alice").revoked
    for action in (RequestAction.RENEW, RequestAction.REGISTER):
        assert code(lambda action=action: registry.answer(action, alice.request(action))) is RelayCode.REVOKED
    registry.revoke("alice")
    assert cut == [alice.slot]
    bob = Client("bob")
    register(registry, bob)
    assert bob.slot != alice.slot


def test_what_another_process_revokes_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "relay.db"
    registry = make_registry(tmp_path, store=SqliteRelayStore(path))
    alice, bob, cut = Client("alice"), Client("bob"), list[str]()
    registry.cut.append(cut.append)
    register(registry, alice)
    register(registry, bob)
    registry.look_again()
    assert cut == []
    operator = make_registry(tmp_path, store=SqliteRelayStore(path))
    operator.revoke("alice")
    registry.look_again()
    assert cut == [alice.slot]
    assert registry.account_of(alice.slot) is None
    assert registry.account_of(bob.slot) is not None
    history = sqlite3.connect(path).execute("SELECT name, what FROM history ORDER BY seq").fetchall()
    assert history == [("alice", "registered"), ("bob", "registered"), ("alice", "revoked")]


def test_closed_and_full_relays_take_no_new_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = Client("alice")
    closed = make_registry(tmp_path, is_open=False)
    assert code(lambda: register(closed, alice)) is RelayCode.PERMISSION_DENIED
    small = make_registry(tmp_path, slots=1)
    register(small, alice)
    assert code(lambda: register(small, Client("bob"))) is RelayCode.QUOTA_EXCEEDED
    monkeypatch.setattr(registry_module, "MAX_ACCOUNTS", 1)
    large = make_registry(tmp_path)
    register(large, alice)
    assert code(lambda: register(large, Client("bob"))) is RelayCode.QUOTA_EXCEEDED
    register(large, alice)


def test_statements_of_rooms_are_kept_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "relay.db"
    kept = SqliteRelayStore(path)
    registry, alice, bob = make_registry(tmp_path, store=kept), Client("alice"), Client("bob")
    room, statement = alice.room(), alice.states(alice.room(), [alice, bob])
    assert code(lambda: registry.state_room(statement.encode(), alice.node)) is RelayCode.PERMISSION_DENIED
    register(registry, alice)
    registry.state_room(statement.encode(), alice.node)
    assert code(lambda: registry.state_room(statement.encode(), alice.node)) is RelayCode.CONFLICT
    kept.close()
    again = make_registry(tmp_path, store=SqliteRelayStore(path))
    assert again.rooms.statement(room) == statement
    connection = sqlite3.connect(path)
    connection.execute("UPDATE rooms SET statement = x'7b7d'")
    connection.commit()
    assert make_registry(tmp_path, store=SqliteRelayStore(path)).rooms.statement(room) is None


def test_what_could_not_be_kept_was_not_given(tmp_path: Path) -> None:
    class Full(SqliteRelayStore):
        def keep_account(self, *_: Any) -> None:
            raise sqlite3.OperationalError("database or disk is full")

    registry, alice = make_registry(tmp_path, slots=1, store=Full(None)), Client("alice")
    with pytest.raises(sqlite3.OperationalError):
        register(registry, alice)
    assert registry.accounts.get("alice") is None
    assert registry.account_of("s00000") is None
    assert code(lambda: register(registry, alice)) is RelayCode.QUOTA_EXCEEDED, "its certificate may be somewhere"


def test_the_relays_own_certificate_is_renewed_before_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sublet.messaging.relay import authority

    make_registry(tmp_path)
    file = tmp_path / "server.pem"
    before = file.read_bytes()
    made = authority.Authority.load(tmp_path)
    made.renew_server([DOMAIN])
    assert file.read_bytes() == before
    monkeypatch.setattr(authority, "RENEW_SERVER", timedelta(days=400))
    made.renew_server([DOMAIN])
    assert file.read_bytes() != before
    assert (tmp_path / "authority.key").stat().st_mode & 0o077 == 0
    (tmp_path / "authority.key").write_bytes((tmp_path / "server.key").read_bytes())
    with pytest.raises(ValueError, match="is not the key"):
        authority.Authority.load(tmp_path)
