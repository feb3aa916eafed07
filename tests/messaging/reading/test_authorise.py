"""What no peer may ever accept is refused: in another's name, under another's id, and of a wrong shape."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sublet.messaging.documents.plan import Located, Plan
from sublet.messaging.reading.authorise import (
    MAX_ENTRY_ID_CHARS,
    MAX_KEY_CHARS,
    WriterRules,
    refuse_forbidden,
)
from sublet.messaging.schema.datatypes import AnnotationPlace, Write
from sublet.protocol.ezagent.errors import Refusal, Refused
from sublet.protocol.ezagent.ids import own_content_id, own_ref_id, room_id
from sublet.protocol.ezagent.keys import DocumentPlace
from sublet.protocol.ezagent.ref_shape import CHANGEABLE, FIXED, MAX_STATUS_CHARS

ALICE, BOB = "@alice:a.example", "@bob:b.example"
ROOM = room_id(ALICE, 1_000, b"0123456789abcdef")
INDEX = DocumentPlace("index", room_id=ROOM, shard_id="2026-11")
REF = own_ref_id(1_000, ROOM, ALICE, 1)
CONTENT = "sha256:" + "0" * 64
FIELDS: Mapping[str, object] = {
    "ref_id": REF,
    "author": ALICE,
    "content_type": "text",
    "content_id": CONTENT,
    "created_at": "2026-11-29T00:00:00Z",
    "status": "active",
}
ARRAY: Any = SimpleNamespace(entry_author="by", entry_id="name")


def document(place: DocumentPlace = INDEX, author: str = ALICE) -> Any:
    nodes = {(1, 0): SimpleNamespace(signer=author)}
    return SimpleNamespace(place=place, elements=SimpleNamespace(node=nodes.get))


def entry(signer: str = ALICE, place: DocumentPlace = INDEX, datatype: Any = None, **changed: object) -> None:
    fields = {name: value for name, value in {**FIELDS, **changed}.items() if value is not None}
    plan = Plan(entries=[cast(Any, SimpleNamespace(fields=fields))])
    refuse_forbidden(datatype, document(place), signer, plan)


def write(
    *path: str,
    value: object = "x",
    signer: str = ALICE,
    author: str = ALICE,
    place: DocumentPlace = INDEX,
    node: tuple[int, int] | None = (1, 0),
) -> None:
    located = Located(node, None, path, nested=False)
    plan = Plan(writes=[cast(Any, SimpleNamespace(located=located, value=value))])
    refuse_forbidden(None, document(place, author), signer, plan)


def refused(refusal: Refusal, call: Any, *args: Any, **more: Any) -> None:
    with pytest.raises(Refused) as why:
        call(*args, **more)
    assert why.value.refusal == refusal
    assert why.value.detail


def test_a_ref_of_its_author_is_taken() -> None:
    entry()


def test_a_document_of_an_entity_is_written_by_that_entity_alone() -> None:
    own = DocumentPlace("inbox", entity_id=ALICE)
    refuse_forbidden(None, document(own), ALICE, Plan())
    refused(Refusal.FOREIGN_KEY, refuse_forbidden, None, document(own), BOB, Plan())


def test_an_element_is_in_the_name_of_who_signs_it() -> None:
    refused(Refusal.FOREIGN_AUTHOR, entry, author=BOB)
    refused(Refusal.FOREIGN_AUTHOR, entry, author=None)
    refused(Refusal.FOREIGN_AUTHOR, entry, signer=BOB)


def test_an_array_names_its_elements_and_their_author_as_its_datatype_says() -> None:
    elsewhere = DocumentPlace("ext", room_id=ROOM, ext_id="poll")
    entry(datatype=ARRAY, place=elsewhere, by=ALICE, name="one", author=None, ref_id=None)
    refused(Refusal.FOREIGN_AUTHOR, entry, datatype=ARRAY, place=elsewhere, by=BOB, name="one")
    refused(Refusal.WRONG_SHAPE, entry, datatype=ARRAY, place=elsewhere, by=ALICE, name=7)


@pytest.mark.parametrize(("name", "fits"), [("", False), ("x", True), ("x" * MAX_ENTRY_ID_CHARS, True)])
def test_the_id_of_an_element_is_a_short_text(name: str, fits: bool) -> None:
    elsewhere = DocumentPlace("ext", room_id=ROOM, ext_id="poll")
    if fits:
        entry(datatype=ARRAY, place=elsewhere, by=ALICE, name=name)
    else:
        refused(Refusal.WRONG_SHAPE, entry, datatype=ARRAY, place=elsewhere, by=ALICE, name=name)
    refused(Refusal.WRONG_SHAPE, entry, datatype=ARRAY, place=elsewhere, by=ALICE, name="x" * 129)


def test_a_ref_is_under_an_id_of_its_author_and_its_room() -> None:
    refused(Refusal.FOREIGN_AUTHOR, entry, ref_id=own_ref_id(1_000, ROOM, BOB, 1))
    refused(Refusal.FOREIGN_AUTHOR, entry, ref_id=own_ref_id(1_000, room_id(BOB, 1, b"0" * 16), ALICE, 1))
    refused(Refusal.WRONG_SHAPE, entry, ref_id="no-ulid")


@pytest.mark.parametrize("name", ["content_type", "content_id", "created_at", "status"])
def test_a_ref_has_its_core_fields_as_texts(name: str) -> None:
    refused(Refusal.WRONG_SHAPE, entry, **{name: None})
    refused(Refusal.WRONG_SHAPE, entry, **{name: 7})


def test_a_ref_names_content_by_an_id_of_content() -> None:
    refused(Refusal.WRONG_SHAPE, entry, content_id="elsewhere")


@pytest.mark.parametrize("name", ["content_type", "status"])
def test_core_fields_are_short(name: str) -> None:
    entry(**dict[str, Any]({name: "x" * MAX_STATUS_CHARS}))
    refused(Refusal.WRONG_SHAPE, entry, **{name: "x" * (MAX_STATUS_CHARS + 1)})


def test_keys_are_short() -> None:
    entry(**dict[str, Any]({"ext." + "k" * 128: 1}))
    refused(Refusal.WRONG_SHAPE, entry, **{"ext." + "k" * 129: 1})
    refused(Refusal.WRONG_SHAPE, entry, **{"k" * (MAX_KEY_CHARS + 1): 1})
    write("ext." + "k" * (MAX_KEY_CHARS - 4))
    refused(Refusal.WRONG_SHAPE, write, "ext." + "k" * (MAX_KEY_CHARS - 3))
    refused(Refusal.WRONG_SHAPE, write, "ext.a", "k" * (MAX_KEY_CHARS + 1))
    refused(Refusal.WRONG_SHAPE, write, "k" * (MAX_KEY_CHARS + 1), node=None)


@pytest.mark.parametrize("name", sorted(FIXED))
def test_what_is_fixed_never_changes(name: str) -> None:
    refused(Refusal.FOREIGN_KEY, write, name)


@pytest.mark.parametrize("name", sorted(CHANGEABLE))
def test_its_author_alone_changes_what_may_change(name: str) -> None:
    value = CONTENT if name == "content_id" else "x"
    write(name, value=value)
    refused(Refusal.FOREIGN_AUTHOR, write, name, value=value, author=BOB)
    refused(Refusal.FOREIGN_AUTHOR, write, name, value=value, signer=BOB)
    refused(Refusal.WRONG_SHAPE, write, name, value=7)
    refused(Refusal.WRONG_SHAPE, write, name, value="x" * 129)
    refused(Refusal.FOREIGN_KEY, write, name, "inner")


def test_a_write_to_an_element_that_came_with_it_is_its_signers() -> None:
    write("status", signer=BOB, node=(2, 0))


def test_annotations_are_left_to_those_who_read() -> None:
    write("ext.reactions", "inner", signer=BOB, value=None)
    write("ext.unknown", signer=BOB, value=7)
    refused(Refusal.WRONG_SHAPE, write, "ext.unknown", value=b"no JSON")


@pytest.mark.parametrize("name", ["unknown", "room_id", "body", "redacted"])
def test_a_ref_has_no_fields_of_other_names(name: str) -> None:
    refused(Refusal.WRONG_SHAPE, entry, **{name: 7})
    refused(Refusal.WRONG_SHAPE, write, name, value=7)


def test_the_rules_of_refs_are_for_timelines() -> None:
    write("author", signer=BOB, place=DocumentPlace("config", room_id=ROOM))


def test_the_bounds_are_those_that_all_replicas_have() -> None:
    assert (MAX_ENTRY_ID_CHARS, MAX_KEY_CHARS, MAX_STATUS_CHARS) == (128, 512, 64)
    assert {"status", "content_type", "content_id", "signature"} == CHANGEABLE
    assert {"ref_id", "author", "created_at"} == FIXED


class Facts:
    """Stands for the room and the rules: says yes, and keeps what it was asked."""

    def __init__(self, annotation: Any = None, member: bool = True, rule: Any = None) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.annotations = {(AnnotationPlace.ON_REF, "reactions"): annotation} if annotation is not None else {}
        decides = SimpleNamespace(counts=rule, acceptable=rule)
        self.annotation_rules = {(AnnotationPlace.ON_REF, "reactions"): decides}
        self._member = member

    def counts(self, *asked: Any) -> bool:
        self.asked.append(asked)
        return self._member

    def later(self, *path: str, founded: bool = False, place: DocumentPlace = INDEX) -> bool:
        timeline: Any = SimpleNamespace(place=place, room_part="part")
        rules = WriterRules(cast(Any, self), cast(Any, self))
        return rules.annotation_counts(timeline, ALICE, path, BOB, (7, 1), founded=founded)


NESTED: Any = SimpleNamespace(name="reactions", nested=True)
PLAIN: Any = SimpleNamespace(name="reactions", nested=False)


def test_an_annotation_is_a_shared_map_where_it_is_declared_as_one() -> None:
    nested, plain = Facts(NESTED), Facts(PLAIN)
    assert WriterRules(cast(Any, nested), cast(Any, nested)).shared_map("ext.reactions") is NESTED
    assert WriterRules(cast(Any, nested), cast(Any, nested)).shared_map("ext.other") is None
    assert WriterRules(cast(Any, plain), cast(Any, plain)).shared_map("ext.reactions") is None


def test_who_is_no_member_annotates_nothing() -> None:
    facts = Facts(member=False)
    assert not facts.later("ext.unknown")
    assert facts.asked == [(ROOM, BOB, "part", (7, 1))]
    assert not Facts().later("ext.unknown", place=DocumentPlace("index"))


def test_an_annotation_that_nobody_here_knows_is_kept() -> None:
    assert Facts().later("ext.unknown")


def test_a_shared_map_is_made_by_its_author_or_by_the_first() -> None:
    assert Facts(NESTED).later("ext.reactions")
    assert not Facts(NESTED).later("ext.reactions", founded=True)


@pytest.mark.parametrize("counts", [True, False])
def test_the_rule_of_an_annotation_is_told_who_wrote_what_where(counts: bool) -> None:
    told: list[Any] = []

    def rule(write: Any) -> bool:
        told.append(write)
        return counts

    facts = Facts(PLAIN, rule=rule)
    assert facts.later("ext.reactions", "inner") is counts
    [write] = told
    assert (write.room_id, write.part, write.signer, write.item, write.key) == (ROOM, "part", BOB, (7, 1), "inner")
    assert (write.named("ref.author"), write.named("author"), write.named("else")) == (ALICE, ALICE, None)
    assert (write.first, write.editors, write.is_editor()) == (True, frozenset(), False)
    facts.asked.clear()
    assert write.is_member()
    assert write.power_reaches("ext.moderate")
    assert facts.asked == [(ROOM, BOB, "part", (7, 1)), (ROOM, BOB, "part", (7, 1), "moderate")]
    write.room_id = None
    assert not write.is_member()
    assert not write.power_reaches("moderate")


@pytest.mark.parametrize("counts", [True, False])
def test_the_first_key_of_an_annotation_is_its_authors(counts: bool) -> None:
    told: list[Any] = []

    def rule(write: Any) -> bool:
        told.append(write)
        return counts

    facts = Facts(NESTED, rule=rule)
    assert WriterRules(cast(Any, facts), cast(Any, facts)).first_key_counts(NESTED, BOB, "key") is counts
    [write] = told
    assert (write.room_id, write.signer, write.key) == (None, BOB, "key")
    assert (write.named("ref.author"), write.named("author")) == (BOB, BOB)


class Declared:
    """Stands for a schema of one datatype, and for the rooms: says what it is told to, and keeps what it was asked."""

    def __init__(self, *, rule: bool = False, widened: tuple[bool, ...] = (), member: bool = True) -> None:
        self.places: list[tuple[Any, ...]] = []
        self.facts: list[Any] = []
        self.writes: list[Any] = []
        self.rooms: list[tuple[Any, ...]] = []
        self.datatype: Any = SimpleNamespace(id="poll")
        self.rules = {"poll": SimpleNamespace(counts=lambda facts: self._keep(self.facts, facts, rule))}
        self.widenings = {"poll": [SimpleNamespace(counts=self._widening(answer)) for answer in widened]}
        self._member = member

    def _widening(self, answer: bool) -> Any:
        return lambda *asked: self._keep(self.writes, asked, answer)

    def _keep(self, where: list[Any], asked: Any, answer: bool) -> bool:
        where.append(asked)
        return answer

    def datatype_at(self, *place: Any) -> Any:
        self.places.append(place)
        return self.datatype

    def counts(self, *asked: Any) -> bool:
        return self._keep(self.rooms, asked, self._member)

    def state(self, room: str) -> Any:
        return SimpleNamespace(was_owner=lambda *asked: self._keep(self.rooms, (room, *asked), self._member))

    def written(self, place: DocumentPlace, *path: str, first: bool = False) -> bool:
        changed: Any = SimpleNamespace(place=place, room_part="part")
        rules = WriterRules(cast(Any, self), cast(Any, self))
        return rules.document_write_counts(cast(Any, "maps"), changed, path, BOB, (7, 1), first=first)


POLL = DocumentPlace("ext", room_id=ROOM, ext_id="poll")
NAMES = ("entity_id", "content.author", "acl.owner", "ref.author")


@pytest.mark.parametrize(
    ("place", "named"),
    [
        (POLL, (None, None, None, None)),
        (DocumentPlace("inbox", entity_id=ALICE), (ALICE, None, None, None)),
        (DocumentPlace("acl", room_id=ROOM, content_id=own_content_id(1, ROOM, BOB, 1)), (None, BOB, BOB, None)),
        (DocumentPlace("acl", room_id=ROOM, content_id=own_content_id(1, ROOM, ALICE, 1)), (None,) * 4),
        (DocumentPlace("acl", content_id=own_content_id(1, ROOM, BOB, 1)), (None,) * 4),
        (DocumentPlace("purge", room_id=ROOM, ref_id=own_ref_id(1, ROOM, BOB, 1)), (None, None, None, BOB)),
        (DocumentPlace("purge", room_id=ROOM, ref_id=REF), (None,) * 4),
        (DocumentPlace("purge", ref_id=own_ref_id(1, ROOM, BOB, 1)), (None,) * 4),
    ],
)
def test_the_rule_of_a_document_is_told_whose_it_is(place: DocumentPlace, named: tuple[str | None, ...]) -> None:
    declared = Declared(rule=True, widened=(True,))
    assert declared.written(place, "key", "inner", first=True)
    [facts] = declared.facts
    assert tuple(map(facts.named, NAMES)) == named
    assert (facts.room_id, facts.part, facts.signer, facts.item) == (place.room_id, "part", BOB, (7, 1))
    assert (facts.key, facts.first, facts.is_editor()) == ("key", True, False)
    assert declared.places == [(place.kind, place.ext_id)]
    assert (declared.writes, declared.rooms) == ([], []), "who may by the rule is not asked for more"


@pytest.mark.parametrize("member", [True, False])
def test_a_rule_asks_whether_the_signer_was_an_owner_in_the_room_of_then(member: bool) -> None:
    declared = Declared(member=member)
    assert not declared.written(POLL)
    [facts] = declared.facts
    assert (facts.key, facts.first) == (None, False)
    assert declared.rooms == []
    assert facts.is_owner() is member
    assert declared.rooms == [(ROOM, BOB, "part", (7, 1))]
    facts.room_id = None
    assert not facts.is_owner()
    facts.editors = frozenset({BOB})
    assert facts.is_editor()


@pytest.mark.parametrize("member", [True, False])
@pytest.mark.parametrize("widened", [(True,), (False,), (False, True), (False, False)])
def test_what_a_rule_does_not_let_in_another_declaration_may(widened: tuple[bool, ...], member: bool) -> None:
    declared = Declared(widened=widened, member=member)
    assert declared.written(POLL, "key", "inner") is any(widened)
    assert declared.writes == [("maps", Write(POLL, ("key", "inner"), BOB, (7, 1), member))] * len(widened)
    assert declared.rooms == [(ROOM, BOB, "part", (7, 1))]


def test_in_a_place_of_no_datatype_and_by_no_widening_nothing_counts() -> None:
    declared = Declared(rule=True, widened=(True,))
    declared.widenings.clear()
    assert declared.written(POLL)
    declared.datatype = SimpleNamespace(id="other")
    declared.rules["other"] = SimpleNamespace(counts=lambda facts: False)
    assert not declared.written(POLL)
    declared.datatype = None
    assert not declared.written(POLL)
