"""The extension of docs/extensions.md: a file that nobody of the engine knows, on peers that have it or not."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import patch

import pytest

import sublet_polls
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.extensions import EXTENSIONS
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.keys import doc_id
from sublet_polls import POLLS
from support.rooms import Peer, peers, shared_room

WITH = (*BUILT_INS, POLLS)
ASKED = "poll: Lunch? pizza | pasta"
DOCS = Path(__file__).parents[2] / "docs/extensions.md"


def everybody(*members: Peer) -> None:
    """Give what each has published to all others, until nobody publishes any more."""
    while out := [(one, sample) for one in members for sample in one.published()]:
        for other in members:
            other.hear(sample for one, sample in out if one is not other)


def asked(*members: Peer) -> tuple[str, str]:
    room = shared_room(*members)
    ref: str = members[0].do("message.send", room_id=room, body=ASKED)["ref_id"]
    everybody(*members)
    return room, ref


def test_members_vote_and_the_author_closes() -> None:
    alice, bob, carol = members = peers("alice", "bob", "carol", declarations=WITH)
    room, ref = asked(*members)
    assert alice.do("timeline.get_ref", room_id=room, ref_id=ref)["ext.poll"] == {
        "question": "Lunch?",
        "options": ["pizza", "pasta"],
    }
    alice.do("polls.vote", room_id=room, ref_id=ref, option="pasta")
    bob.do("polls.vote", room_id=room, ref_id=ref, option="pizza")
    carol.do("polls.vote", room_id=room, ref_id=ref, option="pizza")
    everybody(*members)
    bob.do("polls.vote", room_id=room, ref_id=ref, option="pasta")
    carol.do("polls.vote", room_id=room, ref_id=ref, option=None)
    everybody(*members)
    for one in members:
        assert one.do("timeline.get_ref", room_id=room, ref_id=ref)["poll"] == {
            "counts": {"pizza": 0, "pasta": 2},
            "closed": False,
        }
    with pytest.raises(SubletError, match="only its author"):
        bob.do("polls.close", room_id=room, ref_id=ref)
    assert alice.do("polls.close", room_id=room, ref_id=ref)["counts"] == {"pizza": 0, "pasta": 2}
    everybody(*members)
    with pytest.raises(SubletError, match="closed"):
        bob.do("polls.vote", room_id=room, ref_id=ref, option="pizza")
    for one in members:
        assert one.do("polls.list", room_id=room) == [
            {"ref_id": ref, "counts": {"pizza": 0, "pasta": 2}, "closed": True}
        ]
        told = [kind for kind in one.kinds() if kind.startswith("poll.")]
        assert sorted(told) == sorted(["poll.opened", *["poll.voted"] * 5, "poll.closed"])


@pytest.mark.parametrize("body", ["poll: Lunch", "poll: Lunch? pizza", "poll: Lunch? a | a", "poll: Lunch? a | "])
def test_what_is_no_poll_is_refused_before_anything_is_written(body: str) -> None:
    (alice,) = peers("alice", declarations=WITH)
    room = shared_room(alice)
    with pytest.raises(SubletError, match="a poll has a question"):
        alice.do("message.send", room_id=room, body=body)
    assert alice.bodies(room) == []
    alice.do("message.send", room_id=room, body="no poll at all")
    assert alice.do("polls.list", room_id=room) == []


def nothing(*_: object) -> None:
    """Stands for the hooks of a peer that knows no such extension."""


def test_nobody_votes_for_another_or_closes_what_is_not_theirs() -> None:
    alice, bob = members = peers("alice", "bob", declarations=WITH)
    room, ref = asked(*members)
    plain = {"room_id": room, "ref_id": ref}
    for name, value in ((bob.id, "burger"), (alice.id, "pizza")):
        with pytest.raises(SubletError, match="none of the options"):
            bob.do("annotation.add", **plain, name="poll_votes", key=name, value=value)
    # A peer without the hooks writes all of that, which counts nowhere, and is told to nobody.
    document = next(row.doc_id for row in bob.store.documents(room, "index"))
    hooks = bob.engine.hooks
    with patch.object(hooks, "pre_send", nothing), patch.object(hooks, "after_write", nothing):
        for name, value in ((bob.id, "burger"), (alice.id, "pizza")):
            bob.engine.writing.set_field(bob.id, document, ref, ("ext.poll_votes", name), value)
        for key in (f"{ref}:{alice.id}", f"{ref}:{bob.id}", "x"):
            polls = doc_id("ext", room_id=room, ext_id="polls")
            bob.engine.writing.set_field(bob.id, polls, None, (key,), {alice.id: "pizza"})
        bob.engine.commit()
    everybody(*members)
    for one in members:
        assert one.do("timeline.get_ref", **plain)["poll"] == {"counts": {"pizza": 0, "pasta": 0}, "closed": False}
    assert [kind for kind in alice.kinds() if kind.startswith("poll.")] == ["poll.opened"]


def test_who_comes_late_and_who_does_not_know_it_have_all_of_it() -> None:
    alice, bob = members = peers("alice", "bob", declarations=WITH)
    (plain,) = peers("carol")
    room, ref = asked(*members)
    bob.do("polls.vote", room_id=room, ref_id=ref, option="pizza")
    everybody(*members)
    alice.do("polls.close", room_id=room, ref_id=ref)
    alice.do("room.invite", room_id=room, entity=plain.id)
    late = Peer("carol", 5_000, declarations=WITH)
    for one in (plain, late):
        one.meet(alice, bob)
        one.catch_up(alice, room)
        assert one.do("timeline.get_ref", room_id=room, ref_id=ref)["ext.poll_votes"] == {bob.id: "pizza"}
    assert late.do("polls.list", room_id=room) == alice.do("polls.list", room_id=room)
    assert "polls.list" not in plain.engine.registry.operations


def test_it_does_nothing_in_rooms_that_have_not_enabled_it() -> None:
    (alice,) = peers("alice", declarations=WITH)
    room = alice.do("room.create", name="r", extensions=[])["room_id"]
    ref = alice.do("message.send", room_id=room, body=ASKED)["ref_id"]
    assert alice.do("polls.list", room_id=room) == []
    with pytest.raises(SubletError) as caught:
        alice.do("polls.vote", room_id=room, ref_id=ref, option="pizza")
    assert caught.value.code == LocalCode.CONFLICT


def test_it_fits_beside_all_others() -> None:
    registry = Registry((*BUILT_INS, *EXTENSIONS, POLLS))
    assert registry.level == Registry((*BUILT_INS, *EXTENSIONS)).level


def test_the_documentation_shows_the_very_file() -> None:
    source = Path(sublet_polls.__file__).read_text()
    shown = re.findall(r"```python\n# examples/extensions/sublet_polls.py\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(shown) >= 5
    for block in shown:
        assert block in source
