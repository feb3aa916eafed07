"""What devices say of a room's keys: as it travels, and what is refused of it."""

from __future__ import annotations

import pytest
from nacl.public import PrivateKey
from nacl.signing import SigningKey

from sublet.protocol.ezagent.errors import Refusal, Refused
from sublet.protocol.ezagent.sealing.statements import (
    MAX_BOXES,
    MAX_REMOVALS,
    MAX_STATEMENT_BYTES,
    EpochName,
    KeyStatement,
    Kind,
    commit,
    make_statement,
    open_box,
    parse_statement,
)
from sublet.protocol.ezagent.sealing.wire import NO_ID, device_id

ROOM = "01957a3b-0000-7000-8000-000000000005"
SIGNER, OTHER = SigningKey(b"\1" * 32), SigningKey(b"\2" * 32)
OPENER, READER = device_id(bytes(SIGNER.verify_key)), device_id(bytes(OTHER.verify_key))
SEAL_KEY, OTHER_SEAL_KEY = PrivateKey(b"\5" * 32), PrivateKey(b"\6" * 32)
KEY = b"\7" * 32
FIRST = EpochName(ROOM, 1, NO_ID, OPENER, commit(KEY))
OPENED = make_statement(
    Kind.OPENED,
    FIRST,
    SIGNER,
    KEY,
    {READER: bytes(SEAL_KEY.public_key)},
    frozenset({b"\1" * 16, b"\2" * 16}),
    frozenset({b"\3" * 16}),
)
WANTED = make_statement(Kind.WANTED, FIRST, OTHER)
EVERY = [OPENED, make_statement(Kind.HANDED, FIRST, OTHER, KEY, {OPENER: bytes(SEAL_KEY.public_key)}), WANTED]


@pytest.mark.parametrize("statement", EVERY, ids=lambda one: one.kind.name)
def test_a_statement_comes_back_as_it_was(statement: KeyStatement) -> None:
    assert parse_statement(statement.encode()) == statement
    assert KEY not in statement.encode()


@pytest.mark.parametrize("statement", EVERY, ids=lambda one: one.kind.name)
def test_no_byte_of_a_statement_can_change_or_be_missing(statement: KeyStatement) -> None:
    raw = statement.encode()
    for place in range(len(raw)):
        changed = bytearray(raw)
        changed[place] ^= 1
        for wrong in (bytes(changed), raw[:place], raw + b"\0"):
            with pytest.raises(Refused):
                parse_statement(wrong)


def test_an_epochs_name_and_key_are_as_they_were() -> None:
    """Frozen: another form would make epochs of before unreadable."""
    assert commit(KEY).hex() == "806868642b00decf8145ba5e87d2d3889dd63cbd9e95f2f48e05c17422fe3209"
    assert FIRST.id.hex() == "0f9ff3632f17196cc1eaabc066e13c43"
    assert OPENER.hex() == "66ffd761690ae40ff82c84800e323086"


def test_every_part_of_a_name_makes_another_epoch() -> None:
    others = {
        FIRST.id,
        EpochName(ROOM.replace("5", "6"), 1, NO_ID, OPENER, commit(KEY)).id,
        EpochName(ROOM, 2, NO_ID, OPENER, commit(KEY)).id,
        EpochName(ROOM, 1, b"\1" * 16, OPENER, commit(KEY)).id,
        EpochName(ROOM, 1, NO_ID, READER, commit(KEY)).id,
        EpochName(ROOM, 1, NO_ID, OPENER, commit(b"\1" * 32)).id,
    }
    assert len(others) == 6


def test_only_the_device_of_a_box_opens_it() -> None:
    assert open_box(OPENED, READER, (SEAL_KEY,)) == KEY
    assert open_box(OPENED, READER, (OTHER_SEAL_KEY, SEAL_KEY)) == KEY
    assert open_box(OPENED, READER, (OTHER_SEAL_KEY,)) is None
    assert open_box(OPENED, OPENER, (SEAL_KEY,)) is None
    assert open_box(WANTED, READER, (SEAL_KEY,)) is None


def test_a_box_with_another_key_than_the_epochs_is_seen_to_be_wrong() -> None:
    wrong = make_statement(Kind.OPENED, FIRST, SIGNER, b"\x08" * 32, {READER: bytes(SEAL_KEY.public_key)})
    assert open_box(parse_statement(wrong.encode()), READER, (SEAL_KEY,)) is None
    short = make_statement(Kind.OPENED, FIRST, SIGNER, KEY[:31], {READER: bytes(SEAL_KEY.public_key)})
    assert open_box(parse_statement(short.encode()), READER, (SEAL_KEY,)) is None


def changed(statement: KeyStatement, **fields: object) -> bytes:
    """Return a statement that its signer has signed with other fields than it may have."""
    values = {name: getattr(statement, name) for name in ("kind", "epoch", "signer_key", "boxes")} | fields
    bare = KeyStatement(**values)
    return bare.signed() + SIGNER.sign(b"sublet/room-key/1\n" + bare.signed()).signature


@pytest.mark.parametrize(
    "wrong",
    [
        changed(OPENED, boxes=()),
        changed(OPENED, kind=Kind.WANTED),
        changed(OPENED, boxes=OPENED.boxes * 2),
        changed(OPENED, epoch=EpochName(ROOM, 1, NO_ID, READER, commit(KEY))),
        changed(OPENED, epoch=EpochName(ROOM, 2, NO_ID, OPENER, commit(KEY))),
        changed(OPENED, epoch=EpochName(ROOM, 1, b"\1" * 16, OPENER, commit(KEY))),
        changed(OPENED, epoch=EpochName(ROOM, 0, b"\1" * 16, OPENER, commit(KEY))),
        changed(OPENED, epoch=EpochName("0" * 32, 1, NO_ID, OPENER, commit(KEY))),
    ],
)
def test_what_no_writer_makes_is_refused(wrong: bytes) -> None:
    with pytest.raises(Refused) as refused:
        parse_statement(wrong)
    assert refused.value.refusal is Refusal.MALFORMED


def test_too_many_boxes_are_refused_on_both_sides() -> None:
    many = {number.to_bytes(16, "big"): bytes(SEAL_KEY.public_key) for number in range(MAX_BOXES + 1)}
    removals = frozenset(number.to_bytes(16, "big") for number in range(MAX_REMOVALS + 1))
    with pytest.raises(ValueError, match="too many"):
        make_statement(Kind.OPENED, FIRST, SIGNER, KEY, many)
    for learned in ({"learned": removals}, {"unknown": removals}):
        with pytest.raises(ValueError, match="too many"):
            make_statement(Kind.OPENED, FIRST, SIGNER, KEY, {READER: bytes(SEAL_KEY.public_key)}, **learned)
    box = OPENED.boxes[0][1]
    for wrong in (
        changed(OPENED, boxes=tuple((device, box) for device in sorted(many))),
        changed(OPENED, learned=removals),
        changed(OPENED, unknown=removals),
        changed(WANTED, signer_key=bytes(SIGNER.verify_key), learned=frozenset({b"\1" * 16})),
    ):
        with pytest.raises(Refused, match="too many"):
            parse_statement(wrong)
    with pytest.raises(Refused) as refused:
        parse_statement(bytes(MAX_STATEMENT_BYTES + 1))
    assert refused.value.refusal is Refusal.OVERSIZED
