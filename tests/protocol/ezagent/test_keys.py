"""Ids, keys and shards: only what has the right shape becomes a key."""

from __future__ import annotations

import json
import re
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sublet.protocol.ezagent import ids, keys, shards
from sublet.protocol.ezagent.errors import Refused

VECTORS = Path(__file__).parent / "vectors"
ROOM = "01957a3b-0000-7000-8000-000000000005"
ALICE = "@alice:relay-a.example.com"


@pytest.mark.parametrize("case", json.loads((VECTORS / "entity-id-cases.json").read_text())["cases"])
def test_entity_ids_are_those_of_the_specification(case: dict[str, object]) -> None:
    assert ids.is_entity_id(str(case["id"])) is case["spec_abnf"]


def test_the_engine_itself_never_signs() -> None:
    with pytest.raises(Refused):
        ids.checked_entity_id(ids.SYSTEM_ENTITY)


def test_a_rooms_id_commits_to_its_creator() -> None:
    made = ids.room_id(ALICE, 1_771_668_300_000, b"s" * 16)
    assert ids.is_room_id(made)
    assert made != ids.room_id("@mallory:relay-a.example.com", 1_771_668_300_000, b"s" * 16)
    assert made[:13].replace("-", "") == f"{1_771_668_300_000:012x}"
    with pytest.raises(ValueError, match="salt"):
        ids.room_id(ALICE, 0, b"")


def test_refs_are_ulids_in_the_order_of_time() -> None:
    early, late = ids.ref_id(1, b"\xff" * 10), ids.ref_id(2, b"\0" * 10)
    assert early < late
    assert ids.is_ref_id(early)
    assert ids.is_ref_id("ulid:" + early)
    assert not ids.is_ref_id("8" + early[1:])


REF = re.compile(r"(?:ulid:)?[0-7][0-9A-HJKMNP-TV-Z]{25}\Z")
HASH = re.compile(r"sha256:[0-9a-f]{64}\Z")
NEARLY = ["", "ulid:", "sha256:", "SHA256:", "I", "u", "8", "\n", "\u0660", "g", "-"]


@given(
    start=st.sampled_from(["", "ulid:", "sha256:", "ulid", "sha256"]),
    plain=st.sampled_from(["0" * 26, "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "0123456789ABCDEFGHJKMNPQRS", "a" * 64, "f0" * 32]),
    put=st.sampled_from(NEARLY),
    at=st.integers(0, 64),
    left=st.integers(0, 65),
)
def test_ids_of_refs_and_contents_are_what_the_specifications_patterns_match(
    start: str, plain: str, put: str, at: int, left: int
) -> None:
    for text in (start + plain, start + plain[:at] + put + plain[at + left :]):
        assert ids.is_ref_id(text) is (REF.match(text) is not None)
        assert ids.is_content_hash(text) is (HASH.match(text) is not None)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("config", {"room_id": ROOM}),
        ("index", {"room_id": ROOM, "shard_id": "2026-11-001"}),
        ("content", {"room_id": ROOM, "content_id": "sha256:" + "a" * 64}),
        ("acl", {"room_id": ROOM, "content_id": "uuid:" + ROOM}),
        ("draft", {"room_id": ROOM, "entity_id": ALICE}),
        ("ext", {"room_id": ROOM, "ext_id": "moderation"}),
        ("blob", {"hash": "0" * 64}),
        ("blob_ref", {"room_id": ROOM, "hash": "0" * 64}),
        ("pubkey", {"entity_id": ALICE}),
        ("inbox", {"entity_id": ALICE}),
        ("profile", {"entity_id": ALICE}),
        ("ephemeral", {"room_id": ROOM, "ext_id": "presence", "entity_id": ALICE}),
    ],
)
def test_a_documents_id_tells_what_it_was_made_of(kind: str, values: dict[str, str]) -> None:
    assert keys.parse_doc_id(keys.doc_id(kind, **values)) == keys.DocumentPlace(kind, **values)


@pytest.mark.parametrize(
    "text",
    ["", "ezagent", f"ezagent/{ROOM}", f"ezagent/{ROOM}/config/updates", "ezagent/../config", "ezagent/*/config"],
)
def test_what_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        keys.parse_doc_id(text)


def test_no_value_becomes_a_key_unchecked() -> None:
    with pytest.raises(Refused):
        keys.doc_id("config", room_id="*")
    with pytest.raises(Refused):
        keys.doc_id("config")
    assert keys.instantiate("ezagent/{room_id}/ephemeral/x/@{entity_id}", room_id=ROOM, entity_id=ALICE).endswith(
        f"/x/{ALICE}"
    )


def test_shards_follow_each_other_as_text_does() -> None:
    names = ["2025-12", "2026-01", shards.sub_shard("2026-01", 1), shards.sub_shard("2026-01", 999)]
    assert names == sorted(names)
    assert all(shards.is_shard(name) for name in names)
    assert [shards.number(name) for name in names] == [0, 0, 1, 999]
    assert shards.previous_month("2026-01") == "2025-12"
    assert not any(
        shards.is_shard(text)
        for text in ("2026-13", "2026-01-000", "2026-1", "2026-01-1", "\u0662\u0660\u0662\u0666-\u0660\u0661")
    )
    with pytest.raises(ValueError, match="sub-shards"):
        shards.sub_shard("2026-01", 1000)


def test_a_refs_id_is_its_authors_in_one_room_alone() -> None:
    room, other = (ids.room_id("@alice:node", time, b"s" * 16) for time in (1, 2))
    made = [ids.own_ref_id(5, room, "@alice:node", number) for number in range(70)]
    assert len(set(made)) == len(made)
    for ref in made:
        assert ids.is_ref_id(ref)
        assert ids.is_own_ref_id(ref, room, "@alice:node")
        assert ids.is_own_ref_id(f"ulid:{ref}", room, "@alice:node")
        assert not ids.is_own_ref_id(ref, room, "@eve:node")
        assert not ids.is_own_ref_id(ref, other, "@alice:node")
    assert ids.own_ref_id(5, room, "@alice:node", 0) < ids.own_ref_id(6, room, "@alice:node", 0)


def test_a_client_id_is_its_entitys_alone() -> None:
    made = {ids.client_id("@alice:node", nonce) for nonce in range(70)}
    assert len(made) == 70
    assert all(client < 2**53 and ids.is_client_of(client, "@alice:node") for client in made)
    assert not any(ids.is_client_of(client, "@eve:node") for client in made)
