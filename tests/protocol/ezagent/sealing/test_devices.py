"""Which devices speak for an entity, whatever order their statements came in, and however a lost one lies."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.public import PrivateKey
from nacl.signing import SigningKey

from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.sealing import device_statements as said
from sublet.protocol.ezagent.sealing.device_statements import DeviceStatement, parse_statement
from sublet.protocol.ezagent.sealing.devices import MAX_DEVICES, DeviceList, evaluate, first_device, tip
from sublet.protocol.ezagent.sealing.wire import NO_ID, device_id
from support.budgets import examples

ALICE = "@alice:a.example"


@dataclass
class Own:
    """A device of a test: its keys, and the statements that it knows."""

    seed: int
    known: list[DeviceStatement] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.key = SigningKey(self.seed.to_bytes(2, "big") * 16)
        self.public = bytes(self.key.verify_key)
        self.id = device_id(self.public)
        self.seal_key = bytes(PrivateKey(self.seed.to_bytes(2, "little") * 16).public_key)

    def previous(self) -> bytes:
        return tip(self.id, self.known)

    def adds(self, other: Own) -> DeviceStatement:
        held = said.prove_held(other.key, ALICE, other.seal_key)
        return self._says(
            said.add(self.key, ALICE, self.previous(), other.public, f"device {other.seed}", other.seal_key, held)
        )

    def removes(self, other: Own) -> DeviceStatement:
        return self._says(said.remove(self.key, ALICE, self.previous(), other.public, tip(other.id, self.known)))

    def renews(self, seal_key: bytes) -> DeviceStatement:
        return self._says(said.renew(self.key, ALICE, self.previous(), seal_key))

    def _says(self, statement: DeviceStatement) -> DeviceStatement:
        self.known.append(parse_statement(statement.encode()))
        return statement


def speaking(first: Own, *knowing: Own) -> set[int]:
    """Return the seeds of the devices that speak, by all that some devices know."""
    known = [one for device in knowing for one in device.known]
    ids = {device.id: device.seed for device in EVERY}
    return {ids[device.id] for device in evaluated(first, known).devices}


def evaluated(first: Own, known: list[DeviceStatement]) -> DeviceList:
    return evaluate(ALICE, first.public, known)


EVERY = [Own(seed) for seed in range(1, 40)]


def devices(count: int) -> list[Own]:
    """Return devices of which the first has added the others."""
    made = [Own(seed) for seed in range(1, count + 1)]
    for other in made[1:]:
        made[0].adds(other)
    for other in made[1:]:
        other.known = list(made[0].known)
    return made


def test_an_entity_begins_with_its_identity_key() -> None:
    first = Own(1)
    found = evaluated(first, [])
    assert found.devices == (first_device(first.public),)
    assert found.find(first.id) is not None
    assert [bytes(key) for key in found.verify_keys()] == [first.public]


def test_what_is_sealed_for_the_first_device_opens_with_the_identity_key() -> None:
    from nacl.public import PublicKey, SealedBox

    first = Own(1)
    box = SealedBox(PublicKey(first_device(first.public).seal_key)).encrypt(b"a key")
    assert SealedBox(first.key.to_curve25519_private_key()).decrypt(box) == b"a key"


def test_an_identity_key_for_which_nothing_can_be_sealed_is_refused() -> None:
    with pytest.raises(Refused):
        first_device(bytes(32))


def test_devices_are_added_by_any_and_removed_by_any() -> None:
    first, second, third = devices(3)
    assert speaking(first, first) == {1, 2, 3}
    third.adds(Own(4))
    assert speaking(first, third) == {1, 2, 3, 4}
    third.removes(second)
    assert speaking(first, third) == {1, 3, 4}
    third.removes(first)
    assert speaking(first, third) == {3, 4}


def test_a_removed_device_adds_nobody_however_it_dates_that() -> None:
    first, second, _ = devices(3)
    first.removes(second)
    second.adds(Own(4))
    assert speaking(first, first, second) == {1, 3}


def test_what_a_removal_has_seen_stays() -> None:
    first, second, _ = devices(3)
    first.known.append(second.adds(Own(4)))
    first.removes(second)
    second.adds(Own(5))
    assert speaking(first, first, second) == {1, 3, 4}


def test_a_removed_device_forks_its_chain_in_vain() -> None:
    first, second, _ = devices(3)
    first.known.append(second.adds(Own(4)))
    first.removes(second)
    second.known = [one for one in second.known if one.signer != second.id]
    for seed in range(5, 15):  # one of these has a lower id than what was seen
        second.adds(Own(seed))
        second.known = [one for one in second.known if one.signer != second.id] + [second.known[-1]]
        assert speaking(first, first, second) == {1, 3, 4}
        second.known = [one for one in second.known if one.signer != second.id]


def test_two_that_remove_each_other_are_both_out() -> None:
    first, second, third = devices(3)
    second.removes(third)
    third.removes(second)
    assert speaking(first, second, third) == {1}


def test_a_lost_device_locks_out_and_reads_nothing() -> None:
    first, second, _ = devices(3)
    second.removes(first)
    first.removes(second)
    first.known.append(first.adds(Own(9)))
    assert speaking(first, first, second) == {3}


def test_what_a_lost_device_adds_is_out_with_it() -> None:
    first, second, _ = devices(3)
    second.removes(first)
    first.adds(ninth := Own(9))
    ninth.known = list(first.known)
    ninth.adds(Own(10))
    assert speaking(first, first, second, ninth) == {2, 3}


def test_a_first_device_that_was_lost_is_removed_by_another() -> None:
    first, second, _ = devices(3)
    second.removes(first)
    first.adds(Own(9))
    first.renews(Own(8).seal_key)
    found = evaluated(first, [*first.known, *second.known])
    assert {device.id for device in found.devices} == {Own(2).id, Own(3).id}
    assert found.removed == {first.id}


def test_a_device_that_leaves_writes_nothing_more() -> None:
    first, second, _ = devices(3)
    second.removes(second)
    second.adds(Own(7))
    assert speaking(first, first, second) == {1, 3}


def test_a_device_that_was_removed_does_not_come_back() -> None:
    first, second, _ = devices(3)
    first.removes(second)
    first.adds(second)
    assert speaking(first, first) == {1, 3}


def test_a_device_gets_another_sealing_key() -> None:
    first, second = devices(2)
    key = Own(30).seal_key
    second.renews(key)
    found = evaluated(first, second.known).find(second.id)
    assert found is not None
    assert found.seal_key == key


def test_there_are_so_many_devices_at_a_time() -> None:
    first = Own(1)
    for seed in range(2, 31):
        first.adds(Own(seed))
    assert len(speaking(first, first)) == MAX_DEVICES
    assert 17 not in speaking(first, first)
    first.removes(Own(2))
    assert 17 in speaking(first, first)


def test_statements_of_another_entity_count_for_nothing() -> None:
    first, other = Own(1), Own(2)
    held = said.prove_held(other.key, "@bob:a.example", other.seal_key)
    statement = said.add(first.key, "@bob:a.example", NO_ID, other.public, "", other.seal_key, held)
    assert len(evaluated(first, [statement]).devices) == 1


def every_kind() -> list[DeviceStatement]:
    first, second = devices(2)
    return [first.known[0], first.renews(Own(3).seal_key), first.removes(second)]


@pytest.mark.parametrize("number", range(3))
def test_a_statement_comes_back_as_it_was(number: int) -> None:
    statement = every_kind()[number]
    assert parse_statement(statement.encode()) == statement


@pytest.mark.parametrize("number", range(3))
def test_no_byte_of_a_statement_can_change_or_be_missing(number: int) -> None:
    raw = every_kind()[number].encode()
    for place in range(len(raw)):
        changed = bytearray(raw)
        changed[place] ^= 1
        for wrong in (bytes(changed), raw[:place], raw[:place] + b"\0" + raw[place:]):
            with pytest.raises(Refused):
                parse_statement(wrong)


def test_a_device_that_does_not_hold_its_key_is_not_added() -> None:
    first, second = Own(1), Own(2)
    for held in (
        said.prove_held(first.key, ALICE, second.seal_key),
        said.prove_held(second.key, "@bob:a.example", second.seal_key),
        said.prove_held(second.key, ALICE, first.seal_key),
    ):
        statement = said.add(first.key, ALICE, NO_ID, second.public, "", second.seal_key, held)
        with pytest.raises(Refused, match="not signed"):
            parse_statement(statement.encode())


@pytest.mark.parametrize("seal_key", [bytes(32), b"\1" + bytes(31)])
def test_a_key_for_which_nothing_can_be_sealed_is_refused(seal_key: bytes) -> None:
    first, second = Own(1), Own(2)
    held = said.prove_held(second.key, ALICE, seal_key)
    for statement in (
        said.add(first.key, ALICE, NO_ID, second.public, "", seal_key, held),
        said.renew(first.key, ALICE, NO_ID, seal_key),
    ):
        with pytest.raises(Refused, match="nothing can be sealed"):
            parse_statement(statement.encode())


def test_a_name_can_be_printed_and_is_short() -> None:
    first, second = Own(1), Own(2)
    for name in ("x" * 65, "\x1b[31m"):
        with pytest.raises(ValueError, match="name"):
            said.add(first.key, ALICE, NO_ID, second.public, name, second.seal_key, b"")


@settings(max_examples=examples(80))
@given(st.integers(0, 1 << 32))
def test_devices_that_know_the_same_agree_and_who_was_removed_is_out(seed: int) -> None:
    chance = random.Random(seed)
    everybody = [Own(number) for number in range(1, 8)]
    first = everybody[0]
    for _ in range(chance.randint(1, 25)):
        one, other = chance.choice(everybody), chance.choice(everybody)
        chance.choice([one.adds, one.adds, one.removes])(other) if one is not other or chance.random() < 0.1 else None
        for listener in chance.sample(everybody, 2):
            listener.known = list({known.id: known for known in [*listener.known, *one.known]}.values())
    known = [statement for device in everybody for statement in device.known]
    found = evaluated(first, known)
    for _ in range(3):
        chance.shuffle(known)
        assert evaluated(first, known) == found
    assert not {device.id for device in found.devices} & found.removed
    assert len(found.devices) <= MAX_DEVICES
    # Whoever is out and goes on, however it dates that, changes nothing.
    for device in everybody:
        if device.id in found.removed:
            device.known = [one for one in known if one.signer != device.id][: chance.randint(0, 20)]
            lies = [device.adds(Own(number)) for number in (20, 21)]
            after = evaluated(first, [*known, *lies])
            assert {20, 21}.isdisjoint(speaking_of(after))


def speaking_of(found: DeviceList) -> set[int]:
    ids = {device.id: device.seed for device in EVERY}
    return {ids[device.id] for device in found.devices}


def test_statements_are_the_bytes_that_they_were() -> None:
    """Frozen: another form would make the devices of before nobody's."""
    assert [hashlib.sha256(statement.encode()).hexdigest() for statement in every_kind()] == [
        "09b5a4a9da6430c197aa2b84cbea3c1ea3af73f4de67515afdab48f7fc406b75",
        "5fd3631df5b1be5d1b63895061f026f87a7b053f7c9cbe000d77cd1539e8bce3",
        "080194810ebeccd273ddd4c1a55de6e8928d9e286e83c06c742e7d97dc75e40c",
    ]
