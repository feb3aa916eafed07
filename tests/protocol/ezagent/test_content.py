"""Contents and refs: their ids and signatures, as the vectors have them."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from sublet.protocol.canonical import JsonValue
from sublet.protocol.ezagent import content
from sublet.protocol.ezagent.errors import Refused
from support.ref_signatures import verify_ref

VECTORS = Path(__file__).parent / "vectors"
CASES = json.loads((VECTORS / "content-hash-vectors.json").read_text())["vectors"]
ALICE = SigningKey(base64.b64decode(json.loads((VECTORS / "keys" / "alice.json").read_text())["private_key_raw"]))
BOB = SigningKey(base64.b64decode(json.loads((VECTORS / "keys" / "bob.json").read_text())["private_key_raw"]))
ROOM = "01957a3b-0000-7000-8000-000000000005"


@pytest.mark.parametrize("case", CASES)
def test_contents_are_those_of_the_vectors(case: dict[str, dict[str, JsonValue]]) -> None:
    bare, expected = case["content"], case["spec_reading"]
    assert content.canonical(bare).decode() == expected["canonical_utf8"]
    signed = content.sign_content(bare, ALICE)
    assert signed["content_id"] == expected["content_id"]
    assert signed["signature"] == f"ed25519:{expected['sig_over_canonical_b64url_nopad']}"
    assert content.parse_content(json.dumps(signed).encode()) == signed
    content.verify_content(signed, (ALICE.verify_key,))
    with pytest.raises(Refused):
        content.verify_content(signed, (BOB.verify_key,))


def test_keys_are_ordered_by_code_point() -> None:
    case = json.loads((VECTORS / "canonical-json-cases.json").read_text())
    assert content.canonical(case["object"]).decode() == case["code_point_order"]


@pytest.mark.parametrize("value", [1.5, 2**53, {"e\u0301": 1, "\u00e9": 2}, "\ud800"])
def test_what_has_no_canonical_form_is_refused(value: JsonValue) -> None:
    with pytest.raises(ValueError, match=r".+"):
        content.canonical(value)


def test_a_content_whose_id_is_not_its_own_is_refused() -> None:
    signed = content.sign_content(content.content_object("@a:b", "hello", "text/plain", "now", []), ALICE)
    for change in ({"body": "other"}, {"format": "text/rtf"}, {"author": "@system:local"}, {"body": 1}):
        changed: dict[str, JsonValue] = {**signed, **change}
        with pytest.raises(Refused):
            content.parse_content(json.dumps(changed).encode())
        changed["content_id"] = content.content_id(changed)
        if "body" not in change or change["body"] == 1:
            with pytest.raises(Refused):
                content.parse_content(json.dumps(changed).encode())


def test_a_refs_signature_covers_its_core_and_the_authors_extensions_but_not_its_status() -> None:
    ref: dict[str, JsonValue] = {
        "ref_id": "01JB" + "0" * 22,
        "author": "@a:b",
        "content_type": "immutable",
        "content_id": "sha256:" + "0" * 64,
        "created_at": "2026-02-21T10:05:00.000Z",
        "status": "active",
        "ext.reply_to": {"ref_id": "x"},
    }
    ref["signature"] = content.sign_ref(ROOM, ref, ALICE)
    keys = (ALICE.verify_key,)
    verify_ref(ROOM, {**ref, "status": "edited", "ext.reactions": {}}, keys)
    changes: list[dict[str, JsonValue]] = [
        {"author": "@b:b"},
        {"ext.reply_to": {"ref_id": "y"}},
        {"created_at": 1.5},
        {"signature": None},
    ]
    for changed in changes:
        with pytest.raises(Refused):
            verify_ref(ROOM, {**ref, **changed}, keys)
    with pytest.raises(Refused):
        verify_ref("01957a3b-0000-7000-8000-000000000006", ref, keys)
