"""What may be registered, in which order things run, and what each phase may do."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.after_read import AfterRead
from sublet.messaging.declaring.after_write import AfterWrite, HookViolation
from sublet.messaging.declaring.declaration import (
    AfterReadHook,
    AfterWriteHook,
    Declaration,
    Hooks,
    Index,
    Operation,
    Phase,
    PreSendHook,
    Refresh,
    Trigger,
)
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.declaring.pre_send import PreSend
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.ports.rows import IndexEntry
from sublet.messaging.schema.datatypes import Annotation, AnnotationPlace, Change, Datatype
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.roots import StorageType
from support.rooms import Peer, peers, shared_room


def note(
    id: str = "notes",
    key: str = "ezagent/{room_id}/ext/notes/{state|updates}",
    rule: str = "signer ∈ room.members",
    datatype: str = "notes",
) -> Declaration:
    return Declaration(
        id=id,
        version="1",
        dependencies=("room",),
        datatypes=(Datatype(datatype, StorageType.CRDT_MAP, key, persistent=True, writer_rule=rule),),
    )


def hook(priority: int = 100, datatype: str = "timeline_index", id: str = "notes.hook") -> Declaration:
    quiet = PreSendHook(id, Trigger(datatype), priority, lambda context: None)
    return Declaration(id="notes", version="1", dependencies=("timeline",), hooks=Hooks(pre_send=(quiet,)))


def test_declarations_come_after_what_they_depend_on() -> None:
    declarations = list(BUILT_INS)
    for _ in range(5):
        Random(1).shuffle(declarations)
        registry = Registry(declarations)
        order = ["identity", "room", "node", "sealing", "timeline", "control", "delivery", "message", "purge", "search"]
        assert [item.id for item in registry.declarations] == order
    assert registry.level == 0
    assert Registry(BUILT_INS[:2]).level is None


def test_a_level_is_reached_when_all_of_it_is_there() -> None:
    """The table of ezagent 6.3, whatever the parts hold."""
    parts = {
        1: ["mutable", "reactions", "reply-to", "read-receipts", "presence", "media"],
        2: ["collab", "channels", "moderation", "cross-room-ref", "profile", "watch"],
        3: ["threads", "drafts"],
    }
    there = list(BUILT_INS)
    for level, names in parts.items():
        for name in names:
            assert Registry(there).level == level - 1
            there.append(Declaration(name, "1"))
        assert Registry(there).level == level
    for missing in (name for names in parts.values() for name in names):
        left = [one for one in there if one.id != missing]
        assert Registry(left).level == next(level for level, names in parts.items() if missing in names) - 1
    known = {one.id for one in EXTENSIONS}
    reached = [level for level in (1, 2, 3) if all(set(parts[one]) <= known for one in range(1, level + 1))]
    assert Registry([*BUILT_INS, *EXTENSIONS]).level == max(reached, default=0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (note(rule="anybody"), "not a term"),
        (note(key="ezagent/{room_id}/ext/other/{state|updates}"), "may only be kept under"),
        (note(key="ezagent/{room_id}/config/{state|updates}"), "taken"),
        (note(key="elsewhere/{room_id}"), "no known form"),
        (note(datatype="room_config"), "two declarations manage"),
        (note(id="Notes"), "no name"),
        (note(id="room"), "the same id"),
        (replace(note(), dependencies=("nothing",)), "is not here"),
        (replace(note(), dependencies=("notes",)), "depend on each other"),
        (hook(priority=99), "priority 99"),
        (hook(datatype="*"), "only built-ins watch everything"),
        (hook(datatype="nothing"), "which nothing declares"),
        (hook(id="room.check_room_write"), "two hooks"),
        (replace(note(), operations=(Operation("message.send", print),)), "exists already"),
        (replace(note(), indexes=(Index("x", "", "", Refresh.PERIODIC),)), "not both"),
        (replace(note(), annotations=(Annotation(AnnotationPlace.ON_REF, "x", "", writer_rule="?"),)), "not a term"),
    ],
)
def test_what_may_not_be_registered(wrong: Declaration, message: str) -> None:
    with pytest.raises(SubletError, match=message):
        Registry([*BUILT_INS, wrong])


def test_hooks_run_by_priority_then_by_dependency_and_signing_comes_last() -> None:
    order = [found.id for _, found in Registry([hook(), *BUILT_INS]).hooks(Phase.PRE_SEND)]
    assert order == [
        "room.check_room_write",
        "room.check_config_permission",
        "timeline.generate_ref",
        "message.compute_content_hash",
        "message.validate_content_ref",
        "control.bind",
        "notes.hook",
        "identity.sign_envelope",
    ]


def tagged(context: PreSend) -> None:
    if context.fields.get("ext.notes") == "refuse":
        raise context.refuse("not with me")
    context.annotate("notes", "tagged")


def counted(context: AfterWrite) -> None:
    context.emit("notes.counted", {"ref_id": context.change.entry_id})
    context.index([IndexEntry("notes", str(context.change.room_id), str(context.change.entry_id), {})])


def answered(context: AfterWrite) -> None:
    name = doc_id("ext", room_id=str(context.change.room_id), ext_id="notes")
    context.write_field(name, None, (str(context.change.entry_id),), "seen")


def shown(context: AfterRead) -> None:
    for item in context.items:
        item["note"] = item["ext.notes"]


def count(context: OperationContext, room_id: str) -> int:
    context.state(room_id)
    return len(context.parts.store.scan_index("notes", room_id, 100))


ON_INSERT = Trigger("timeline_index", Change.INSERT)
NOTES = Declaration(
    id="notes",
    version="1",
    dependencies=("timeline",),
    datatypes=note().datatypes,
    hooks=Hooks(
        pre_send=(PreSendHook("notes.tag", ON_INSERT, 100, tagged),),
        after_write=(
            AfterWriteHook("notes.count", ON_INSERT, 100, counted),
            AfterWriteHook("notes.answer", ON_INSERT, 101, answered, writes=True),
        ),
        after_read=(AfterReadHook("notes.show", Trigger("timeline_index"), 100, shown),),
    ),
    annotations=(Annotation(AnnotationPlace.ON_REF, "notes", "a word"),),
    indexes=(Index("notes", "refs", "count", Refresh.ON_CHANGE, "notes.count", count),),
)


def room_with_notes() -> tuple[Peer, Peer, str]:
    alice, bob = peers("alice", "bob", declarations=(*BUILT_INS, NOTES))
    room = alice.do("room.create", name="r", invite=[bob.id], extensions=["notes"])["room_id"]
    bob.engine.here.want(room)
    bob.hear(alice.published())
    return alice, bob, room


def test_an_extension_of_one_declaration_works_on_both_sides() -> None:
    alice, bob, room = room_with_notes()
    ref = alice.do("message.send", room_id=room, body="hello")["ref_id"]
    bob.hear(alice.published())
    for peer in (alice, bob):
        assert peer.do("timeline.list", room_id=room)["refs"][0]["note"] == "tagged"
        assert peer.do("notes.count", room_id=room) == 1
        assert "notes.counted" in peer.kinds()
        # Only where the message was made was anything written; the other has it from there.
        assert peer.engine.reading.map_document(doc_id("ext", room_id=room, ext_id="notes")) == {ref: "seen"}
    assert bob.published() == []


def test_a_hook_refuses_before_anything_is_written() -> None:
    alice, _, room = room_with_notes()
    with pytest.raises(SubletError, match="not with me"):
        alice.do("message.send", room_id=room, body="hello", ext={"notes": "refuse"})
    assert alice.published() == []
    assert alice.bodies(room) == []


def test_an_extension_that_the_room_has_not_enabled_does_nothing() -> None:
    alice, bob = peers("alice", "bob", declarations=(*BUILT_INS, NOTES))
    room = alice.do("room.create", name="r", invite=[bob.id], extensions=[])["room_id"]
    alice.do("message.send", room_id=room, body="hello")
    assert alice.do("notes.count", room_id=room) == 0
    assert "ext.notes" not in alice.do("timeline.list", room_id=room)["refs"][0]


def test_a_hook_after_the_write_changes_neither_the_data_nor_anything_unless_it_said_so() -> None:
    found: list[str] = []

    def meddle(context: AfterWrite) -> None:
        change = context.change
        for target, path in ((change.entry_id, ("status",)), (None, ("x",))):
            try:
                context.write_field(change.doc_id, target, path, "changed")
            except HookViolation as violation:
                found.append(str(violation))
        with pytest.raises(AttributeError):
            change.signer = "x"  # type: ignore[misc]

    quiet = AfterWriteHook("notes.meddle", Trigger("timeline_index", Change.UPDATE), 100, meddle, writes=True)
    silent = replace(quiet, id="notes.silent", writes=False)
    declaration = replace(NOTES, hooks=Hooks(after_write=(quiet, silent)))
    (alice,) = peers("alice", declarations=(*BUILT_INS, declaration))
    room = alice.do("room.create", name="r", extensions=["notes"])["room_id"]
    ref = alice.do("message.send", room_id=room, body="hello")["ref_id"]
    alice.do("message.delete", room_id=room, ref_id=ref)
    assert found == [
        "notes.meddle changes what it was called for",
        "notes.silent writes, but may not here",
        "notes.silent writes, but may not here",
    ]


def test_a_hook_that_fails_after_the_write_or_the_read_takes_nothing_from_anybody() -> None:
    def fail(context: Any) -> None:
        raise RuntimeError("broken")

    broken = Hooks(
        after_write=(AfterWriteHook("notes.fail", ON_INSERT, 100, fail),),
        after_read=(AfterReadHook("notes.fail_too", Trigger("timeline_index"), 100, fail),),
    )
    (alice,) = peers("alice", declarations=(*BUILT_INS, replace(NOTES, hooks=broken)))
    room = alice.do("room.create", name="r", extensions=["notes"])["room_id"]
    alice.do("message.send", room_id=room, body="hello")
    assert alice.bodies(room) == ["hello"]


def test_a_peer_without_the_extension_keeps_its_data() -> None:
    alice, bob = peers("alice", "bob", declarations=(*BUILT_INS, NOTES))
    (plain,) = peers("carol")
    plain.meet(alice, bob)
    alice.meet(plain)
    room = alice.do("room.create", name="r", invite=[bob.id, plain.id], extensions=["notes"])["room_id"]
    plain.engine.here.want(room)
    alice.do("message.send", room_id=room, body="hello")
    plain.hear(alice.published())
    assert plain.do("timeline.list", room_id=room)["refs"][0]["ext.notes"] == "tagged"


def test_operations_are_called_by_name_with_their_arguments() -> None:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    for name, arguments in (("message.sing", {}), ("message.send", {"room": room}), ("message.send", {})):
        with pytest.raises(SubletError):
            alice.do(name, **arguments)
    with pytest.raises(SubletError, match="none of this daemon"):
        alice.engine.keyring.key(bob.id)
