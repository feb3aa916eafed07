"""EXT-13: what an entity says of itself, who gets it, and who is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from pycrdt import Doc, Map, Text

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.declaration import Declaration
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.declaring.operations import run_operation
from sublet.messaging.extensions.profile import MAX_BODY_CHARS, MAX_FIELDS, PROFILES, _rebuild
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.envelope import unpack
from sublet.protocol.ezagent.ids import SYSTEM_ENTITY
from sublet.protocol.ezagent.keys import doc_id
from support.members import SECONDS, member, room_of
from support.memory_network import MemoryHub
from support.rooms import Peer, peers, shared_room

WITH: tuple[Declaration, ...] = (*BUILT_INS, PROFILES)
BODY = "## Capabilities\n\n- **Code Review**: Rust, Python\n"


def two() -> tuple[Peer, Peer]:
    alice, bob = peers("alice", "bob", declarations=WITH)
    shared_room(alice, bob)
    bob.published()
    return alice, bob


def update(peer: Peer, frontmatter: dict[str, Any] | None = None, body: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = peer.do("profile.update", frontmatter=frontmatter, body=body)
    return found


def test_a_message_that_is_being_sent_while_a_profile_comes_is_kept() -> None:
    """The hook that is told of the profile reads its text, which commits what was written before: not from within."""
    alice, bob = two()
    [room] = [one["room_id"] for one in bob.do("room.list")]
    update(alice, {"display_name": "Alice"}, "one")
    bob.hear(alice.published())
    update(alice, {"display_name": "Alice"}, "two")
    operations, engine = bob.engine.registry.operations, bob.engine
    sent = run_operation(operations, engine.operating, bob.id, "message.send", {"room_id": room, "body": "kept"})
    bob.hear(alice.published())  # in the same batch of the engine's thread
    engine.commit()
    assert [ref["ref_id"] for ref in bob.do("timeline.list", room_id=room)["refs"]] == [sent["ref_id"]]
    alice.hear(bob.published())
    assert alice.bodies(room) == ["kept"]
    assert bob.do("discovery.search", query="two") == [alice.do("profile.get")]


def test_a_profile_is_written_read_changed_and_found() -> None:
    alice, bob = two()
    with pytest.raises(SubletError, match="no profile"):
        bob.do("profile.get", entity=alice.id)
    made = update(alice, {"display_name": "Code Review Agent", "online": True}, BODY)
    assert made == {
        "entity_id": alice.id,
        "frontmatter": {"entity_type": "agent", "display_name": "Code Review Agent", "online": True},
        "body": BODY,
    }
    bob.hear(alice.published())
    assert bob.do("profile.get", entity=alice.id) == alice.do("profile.get") == made
    assert bob.do("discovery.search", query="PYTHON review") == [made]
    assert bob.do("discovery.search", query="python haskell") == []

    update(alice, {"online": None, "entity_type": "service"}, "## Haskell")
    bob.hear(alice.published())
    assert bob.do("profile.get", entity=alice.id)["frontmatter"] == {
        "entity_type": "service",
        "display_name": "Code Review Agent",
    }
    assert [one["entity_id"] for one in bob.do("discovery.search", query="haskell")] == [alice.id]
    assert bob.do("discovery.search", query="python") == []
    update(alice, {"display_name": "Code Review Agent"}, "## Haskell")
    assert alice.published() == [], "nothing was changed"


def test_whoever_is_named_comes_before_whoever_only_mentions_it() -> None:
    alice, bob = two()
    update(alice, {"display_name": "A"}, "asks zoe for tests")
    update(bob, {"display_name": "Zoe"}, "tests")
    alice.hear(bob.published())
    assert [one["entity_id"] for one in alice.do("discovery.search", query="zoe")] == [bob.id, alice.id]
    assert len(alice.do("discovery.search", query="tests", limit=1)) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"frontmatter": {"entity_type": "Not A Word"}},
        {"frontmatter": {"entity_type": None}},
        {"frontmatter": {"avatar_hash": "../../etc/passwd"}},
        {"frontmatter": {"Display Name": "x"}},
        {"frontmatter": {"links": ["a"]}},
        {"frontmatter": {"about": "x" * 2_000}},
        {"frontmatter": {f"f{number}": 1 for number in range(MAX_FIELDS)}},
        {"body": "x" * (MAX_BODY_CHARS + 1)},
    ],
)
def test_what_has_another_shape_is_not_written(wrong: dict[str, Any]) -> None:
    alice, _ = two()
    alice.published()
    update(alice, {"entity_type": "agent"})
    alice.published()
    with pytest.raises(SubletError):
        alice.do("profile.update", **wrong)
    assert alice.published() == []
    assert alice.do("profile.get")["frontmatter"] == {"entity_type": "agent"}


@pytest.mark.parametrize("query", ["", "  ", "a " * 17, "x" * 500])
def test_a_query_has_words_and_not_too_many(query: str) -> None:
    alice, _ = two()
    with pytest.raises(SubletError, match="query"):
        alice.do("discovery.search", query=query)


def test_nobody_writes_the_profile_of_another_and_a_stranger_s_is_not_taken() -> None:
    alice, bob = two()
    with pytest.raises(SubletError, match="itself"):
        bob.engine.writing.set_fields(bob.id, doc_id("profile", entity_id=alice.id), [(None, ("body",), "mine now")])
    mallory = Peer("mallory", 2000, declarations=WITH)
    mallory.meet(alice, bob)
    alice.meet(mallory)
    update(mallory, {"display_name": "alice"}, "trust me")
    assert alice.hear(mallory.published()).accepted == 0
    assert alice.refused() == {"unknown_document": 2}
    assert alice.do("discovery.search", query="trust") == []


def test_what_a_foreign_daemon_writes_badly_is_no_profile() -> None:
    alice, bob = two()
    # Past the operation, as a daemon does that checks nothing.
    bob.engine.writing.set_fields(bob.id, doc_id("profile", entity_id=bob.id), [(None, ("frontmatter",), "text")])
    bob.engine.commit()
    alice.hear(bob.published())
    with pytest.raises(SubletError, match="no profile"):
        alice.do("profile.get", entity=bob.id)
    update(bob, {"display_name": "Bob"})
    alice.hear(bob.published())
    assert alice.do("profile.get", entity=bob.id)["frontmatter"]["display_name"] == "Bob"


def test_whoever_shares_no_room_any_more_is_forgotten_by_the_search() -> None:
    alice, bob = two()
    update(bob, {"display_name": "Bob"})
    alice.hear(bob.published())
    assert len(alice.do("discovery.search", query="bob")) == 1
    [room] = alice.do("room.list")
    alice.do("room.kick", room_id=room["room_id"], entity=bob.id)
    _rebuild(OperationContext(alice.engine.operating, SYSTEM_ENTITY))
    assert alice.do("discovery.search", query="bob") == []


@pytest.mark.anyio
async def test_a_profile_reaches_whoever_joins_later(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path, more=(PROFILES,)) as alice:
        made = await alice.bus.profile.update(frontmatter={"display_name": "Alice"}, body=BODY)
        async with member("bob", 2, hub, tmp_path, more=(PROFILES,)) as bob:
            await room_of(alice, bob)
            with anyio.fail_after(SECONDS):
                while await bob.bus.discovery.search(query="alice") != [made]:
                    await anyio.sleep(0.05)


def test_the_text_is_merged_where_an_entity_writes_it_on_two_devices() -> None:
    laptop, bob = two()
    update(laptop, {}, "Reviews Python.\n")
    desktop = Peer("alice", 77, declarations=WITH)  # the same key in another process
    desktop.meet(bob)
    first = laptop.published()
    desktop.hear(first)
    update(laptop, {}, "Reviews Python.\nSpeaks German.\n")
    update(desktop, {}, "Hello. Reviews Python.\n")
    one, other = laptop.published(), desktop.published()
    bob.hear([*first, *other, *one])
    laptop.hear(other)
    desktop.hear(one)
    merged = "Hello. Reviews Python.\nSpeaks German.\n"
    assert {peer.do("profile.get", entity=laptop.id)["body"] for peer in (laptop, desktop, bob)} == {merged}
    assert [found["body"] for found in bob.do("discovery.search", query="hello german")] == [merged]


def test_others_read_a_profile_with_the_library_of_its_format() -> None:
    alice, _ = two()
    update(alice, {"display_name": "A"}, BODY)
    doc: Doc[Any] = Doc()
    fields, text = doc.get("profile", type=Map), doc.get("body", type=Text)
    for item in alice.published():
        doc.apply_update(unpack(item.payload).payload)
    assert str(text) == BODY
    assert fields.to_py()["frontmatter"] == {"entity_type": "agent", "display_name": "A"}
