"""Random histories: the same for the same seed, read again and shortened, and their judge sees what is lost."""

from __future__ import annotations

from typing import Any, Final

import pytest

from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import RoomId
from support.histories.generating import generate
from support.histories.kinds import KINDS
from support.histories.playing import play
from support.histories.promises import Promise, Promises, Shown, Views
from support.histories.shrinking import shrink, without_orphans
from support.histories.stage import NotRunning
from support.histories.steps import History, Step, read_script
from support.histories.verdict import Verdict

ALICE = "@alice:node-1"


def shown(*refs: dict[str, Any], **other: Any) -> Shown:
    told: dict[str, Any] = {"name": "", "members": {}, "config": {}, "readers": {}, "profiles": {}} | other
    return Shown([{"status": "active", **ref} for ref in refs], **told)


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_seed_makes_the_same_history_again_and_its_script_tells_all_of_it(kind: str) -> None:
    made = generate(kind, 7, 80)
    assert generate(kind, 7, 80) == made != generate(kind, 8, 80)
    assert read_script(made.script()) == made
    assert 2 <= made.daemons <= 6
    assert all(step.who < made.daemons for step in made.steps)
    assert without_orphans(made.steps) == list(made.steps), "no step refers to a later one"


def kept(key: tuple[str, ...], value: Any, view: Shown) -> bool:
    promises = Promises()
    promises.make(Promise(1, "r", key, value), "d0")
    return not promises.broken("r", view)


def test_what_was_acknowledged_and_is_not_shown_is_told() -> None:
    ref = {"ref_id": "1", "body": "new", "reactions": {"+1": {"count": 1, "users": [ALICE]}}, "pinned": True}
    assert kept(("sent", "1"), True, shown(ref))
    assert not kept(("sent", "2"), True, shown(ref))
    assert kept(("body", "1"), "new", shown(ref))
    assert not kept(("body", "1"), "newer", shown(ref))
    assert not kept(("gone", "1"), True, shown(ref))
    assert kept(("gone", "1"), True, shown(ref | {"redacted": True}))
    assert kept(("body", "1"), "newer", shown(ref | {"redacted": True})), "nobody has to show it any more"
    assert not kept(("reaction", "1", ALICE, "+1"), False, shown(ref))
    assert not kept(("reaction", "1", ALICE, "-1"), True, shown(ref))
    assert not kept(("pinned", "1"), False, shown(ref))
    other = {"ref_id": "2"}
    assert kept(("behind", "1"), "2", shown(other, ref))
    assert not kept(("behind", "1"), "2", shown(ref, other)), "its author had seen the other one"
    assert not kept(("characters", "1", "n"), 2, shown(ref))
    assert not kept(("name",), "Work", shown(ref, name="Play"))
    assert not kept(("member", ALICE), True, shown(ref))
    assert not kept(("read", ALICE), True, shown(ref, members={ALICE: {}}))
    assert kept(("read", ALICE), True, shown(ref)), "who is no member has read nothing there"


def test_of_values_that_were_written_at_once_any_will_do_and_of_others_the_last() -> None:
    promises = Promises()
    promises.make(Promise(1, "r", ("name",), "one"), "d0")
    promises.make(Promise(2, "r", ("name",), "two"), "d1", shown(name=""))
    for name, told in (("one", 0), ("two", 0), ("", 1)):
        assert len(promises.broken("r", shown(name=name))) == told
    promises.make(Promise(3, "r", ("name",), "three"), "d1", shown(name="one"))
    assert promises.broken("r", shown(name="one")), "who wrote three had seen one"
    assert not promises.broken("r", shown(name="three"))


@pytest.mark.anyio
async def test_of_a_home_that_went_back_what_nobody_shows_is_released() -> None:
    promises = Promises()
    for ref in ("1", "2"):
        promises.make(Promise(1, "r", ("sent", ref), True), "d0")

    async def look(who: int, room: RoomId) -> Shown | None:
        return shown({"ref_id": "1"})

    await promises.reconsider({"d0": "d0 before"}, Views(look, [RoomId("r")], [1]))
    assert [one.key for one in promises.broken("r", shown())] == [("sent", "1")]


def test_another_order_another_text_and_a_message_more_are_told_apart() -> None:
    one, two = {"ref_id": "1", "body": "a"}, {"ref_id": "2", "body": "b"}
    first = shown(one, two)
    assert first.differs(shown(one, two)) == ""
    assert first.differs(shown(two, one)) == "another order"
    assert first.differs(shown(one)) == "1 messages more and 0 fewer"
    assert "body 'b' and 'c'" in first.differs(shown(one, two | {"body": "c"}))
    assert "config" in first.differs(shown(one, two, config={"name": "x"}))


@pytest.mark.anyio
async def test_what_does_not_take_part_in_a_failure_is_left_out() -> None:
    made = generate("kills", 3, 120)
    needed = {step.number for step in made.steps if step.do in ("room", "kill")}
    tried: list[History] = []

    async def fails(history: History) -> bool:
        return needed <= {step.number for step in history.steps}

    found = await shrink(made, fails, 60.0, tried.append)
    assert {step.number for step in found.steps} == needed
    assert tried[-1] == found


class Forgetful:
    """A stage of two daemons of which the second never shows the last message."""

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []

    def entity(self, who: int) -> str:
        return f"@d{who}:node-1"

    def running(self) -> list[int]:
        return [0, 1]

    async def call(self, who: int, operation: str, /, *, of_copy: bool = False, **arguments: Any) -> Any:
        match operation:
            case "room.create":
                return {"room_id": "r"}
            case "message.send":
                self.said.append({"ref_id": str(len(self.said)), "body": arguments["body"], "status": "active"})
                return self.said[-1]
            case "room.get":
                return {"name": "Work", "members": {self.entity(0): {}, self.entity(1): {}}, "config": {}}
            case "timeline.list":
                return {"refs": self.said[: len(self.said) - who], "next_cursor": None}
            case "receipts.summary":
                return {"readers": {}}
            case _:
                return {"body": None}

    async def nothing(self, *_: Any) -> None:
        """Faults do nothing here."""

    kill = start = cut = heal = save = roll_back = fill = make_room = clock = copy = end_copy = nothing
    damage = attack = end_attack = repair = reconcile = ask_first = sum_of = nothing

    async def attacker(self) -> str:
        return self.entity(9)

    async def lacks(self, who: int, room: RoomId) -> bool:
        """Nobody says so."""
        return False

    def offences(self) -> list[str]:
        """Nobody is shut out."""
        return []


@pytest.mark.anyio
async def test_a_message_that_one_member_never_shows_is_lost_and_differs() -> None:
    steps = (Step(0, 0, "room", {"name": "Work"}), Step(1, 0, "send", {"room": 0, "body": "hello"}))
    verdict: Verdict = await play(History("nothing", 1, 2, steps), Forgetful(), 0.0)
    assert not verdict.right
    assert verdict.operations == 2
    assert verdict.ways() == {"lost sent"}
    assert verdict.lost == ["d1: step 1: sent 0 is True"]
    assert len(verdict.differ) == 1


class Invited(Forgetful):
    """A stage of two daemons of which the first alone is in the room, and goes back; the second is invited.

    Args:
        flaw: what is wrong with it.
    """

    def __init__(self, flaw: str) -> None:
        super().__init__()
        self.flaw = flaw
        self.has_room = {0}
        self.invited = flaw != "nobody was invited yet"
        self.saved: tuple[list[dict[str, Any]], set[int]] = ([], set())
        self.down: set[int] = set()

    def running(self) -> list[int]:
        return [who for who in (0, 1) if who not in self.down]

    async def call(self, who: int, operation: str, /, *, of_copy: bool = False, **arguments: Any) -> Any:
        if who in self.down:
            raise NotRunning
        if operation == "invitations.list":
            if self.flaw == "nobody knows of invitations":
                raise SubletError(LocalCode.INTERNAL, "it does not say", "")
            waits = self.invited and who == 1 and who not in self.has_room
            members = [self.entity(0), self.entity(1)]
            return [{"room_id": "r", "name": "Work", "members": members, "answer": "pending"}] if waits else []
        if operation == "invitations.accept":
            self.has_room |= {0, 1}  # who is in it tells the other one of it
        elif operation != "room.create" and who not in self.has_room:
            raise SubletError(LocalCode.NOT_FOUND, "no such room", "")
        return await super().call(0, operation, **arguments)

    async def lacks(self, who: int, room: RoomId) -> bool:
        return who not in self.has_room | self.down and self.flaw != "the other one may have had it"

    async def save(self, who: int) -> None:
        self.saved = (list(self.said), set(self.has_room))

    async def roll_back(self, who: int) -> None:
        said, has_room = self.saved
        self.said[:], self.has_room = said, set(has_room)
        self.down.discard(who)
        if self.flaw in ("the room is forgotten by a home that had it saved", "nobody was invited yet"):
            self.has_room.clear()

    async def kill(self, who: int) -> None:
        self.down.add(who)

    async def start(self, who: int) -> None:
        self.down.discard(who)

    async def damage(self, who: int, how: str, seed: int) -> None:
        await self.roll_back(who)
        self.down.add(who)

    async def repair(self) -> None:
        if self.flaw == "what the home still had is lost later":
            del self.said[0]
        if self.flaw == "an invitation is forgotten":
            self.invited, self.has_room = False, set()


BACK: Final = (Step(5, 0, "roll back"),)
DAMAGED: Final = (Step(5, 0, "kill"), Step(6, 0, "damage", {"how": "rows", "seed": 1}), Step(7, 0, "start"))


def _goes_back(*how: Step) -> tuple[Step, ...]:
    return (
        Step(0, 1, "ask first", {"asks": True}),
        Step(1, 0, "room", {"name": "Work"}),
        Step(2, 0, "send", {"room": 1, "body": "before"}),
        Step(3, 0, "save"),
        Step(4, 0, "send", {"room": 1, "body": "alone"}),
        *how,
    )


@pytest.mark.anyio
@pytest.mark.parametrize("how", [BACK, DAMAGED], ids=["rolled back", "damaged"])
@pytest.mark.parametrize("flaw", ["", "the room is forgotten by a home that had it saved", "nobody was invited yet"])
async def test_what_a_home_that_went_back_had_alone_is_no_loss(flaw: str, how: tuple[Step, ...]) -> None:
    verdict: Verdict = await play(History("rollbacks", 1, 2, _goes_back(*how)), Invited(flaw), 3.0)
    assert verdict.right, str(verdict)
    assert verdict.operations == 3


@pytest.mark.anyio
@pytest.mark.parametrize("how", [BACK, DAMAGED], ids=["rolled back", "damaged"])
@pytest.mark.parametrize(
    ("flaw", "lost", "differs"),
    [
        ("what the home still had is lost later", {("sent", 2)}, False),
        ("the other one may have had it", {("sent", 4)}, False),
        ("nobody knows of invitations", {("sent", 4)}, True),
        ("an invitation is forgotten", set(), True),
    ],
)
async def test_no_more_than_that_is_excused(
    flaw: str, lost: set[tuple[str, int]], differs: bool, how: tuple[Step, ...]
) -> None:
    verdict: Verdict = await play(History("rollbacks", 1, 2, _goes_back(*how)), Invited(flaw), 0.1)
    assert not verdict.right
    assert verdict.promises == lost
    assert bool(verdict.differ) == differs


@pytest.mark.anyio
async def test_a_room_that_goes_while_no_home_went_back_is_missed() -> None:
    verdict: Verdict = await play(History("nothing", 1, 2, _goes_back()), Invited("an invitation is forgotten"), 0.0)
    assert verdict.differ == ["d0 does not show r"]
