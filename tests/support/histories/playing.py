"""Plays a history on a stage, and judges it: what was acknowledged, what is shown at the end, and after how long."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any, Final

import anyio

from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.ids import EntityId, RoomId
from support.histories.leftovers import is_nowhere, left_of
from support.histories.looking import look, look_at_config
from support.histories.promises import Promise, Promises, Shown, Views
from support.histories.stage import NOWHERE, NotRunning, Stage
from support.histories.steps import History, Step
from support.histories.verdict import Verdict

LOOK_SECONDS: Final = 0.25
"""Between two looks at whether all show the same."""
FIRST_CHARACTER: Final = 0x4E00
"""Each step that writes into a text has a character of its own, so that any of them can be found again."""
SUMS_SECONDS: Final = 2.0
"""How long it is waited at most for rooms to sum up to the same, before what they show is compared."""
SETTLE_SECONDS: Final = 10.0
JOIN_SECONDS: Final = 2.0
"""How long whoever is invited may take to be in a new room before things go on; who is cut off can't be there."""
BEFORE: Final = "-"
"""Ends the name of a writer in what its home has said before that went back."""
INNER_ERRORS: Final = (AssertionError, KeyError, TypeError, ValueError, AttributeError, IndexError)
"""What an operation must never end with."""


async def play(history: History, stage: Stage, patience: float, forcing: bool = False) -> Verdict:
    """Play a history, repair everything, and return what came of it.

    Args:
        history: what happens.
        stage: which has just begun.
        patience: seconds after the last repair by which all has to be equal.
        forcing: give up as soon as everybody has asked for everything and nothing has changed.
    """
    player = _Player(stage, history.daemons)
    for step in history.steps:
        await player.step(step)
    await stage.repair()
    return await player.judge(patience, forcing)


class _Player:
    def __init__(self, stage: Stage, daemons: int) -> None:
        self._stage = stage
        self._daemons = daemons
        self._promises = Promises()
        self._rooms: dict[int, RoomId] = {}
        self._refs: dict[int, list[str]] = {}
        """What each step has said."""
        self._lives: dict[int, int] = {}
        """How often each daemon's home has gone back."""
        self._damaged: dict[int, int] = {}
        """Daemons that are down and were damaged, each with its life until then: what it still has is seen later."""
        self._asking: set[int] = set()
        """Daemons whose person answers invitations by a step of their own."""
        self._declined: set[tuple[RoomId, EntityId]] = set()
        """Who has said no: that one is asked no more there, and need not show a room into which it is invited again."""
        self._invited: Counter[tuple[RoomId, EntityId]] = Counter()
        self._nowhere: set[RoomId] = set()
        """Rooms of which a home that went back had all that there was: nobody else had as much as an invitation."""
        self._verdict = Verdict()
        self._doing: dict[str, Callable[[Step], Awaitable[None]]] = {
            "room": self._room,
            "send": self._send,
            "send many": self._send_many,
            "edit": self._edit,
            "edit many": self._edit_many,
            "delete": self._take_down,
            "redact": self._take_down,
            "purge": self._purge,
            "react": self._react,
            "unreact": self._react,
            "pin": self._pin,
            "unpin": self._pin,
            "share text": self._share,
            "write text": self._write,
            "cut text": self._cut_text,
            "name": self._name,
            "hint": self._hint,
            "profile": self._profile,
            "read": self._read,
            "draft": lambda step: self._do(step, "drafts.save", body=step.args["body"]),
            "kick": self._kick,
            "leave": self._leave,
            "invite": self._invite,
            "power": self._power,
            "ask first": self._ask_first,
            "accept": self._accept,
            "decline": self._decline,
            "let in": self._let_in,
            "put out": self._put_out,
            "kill": lambda step: stage.kill(step.who),
            "start": self._start,
            "cut": lambda step: stage.cut(step.args["groups"]),
            "heal": lambda step: stage.heal(),
            "save": lambda step: stage.save(step.who),
            "roll back": self._roll_back,
            "fill": lambda step: stage.fill(step.who),
            "make room": lambda step: stage.make_room(step.who),
            "clock": lambda step: stage.clock(step.who, step.args["ms"]),
            "copy": lambda step: stage.copy(step.who),
            "end copy": self._end_copy,
            "damage": self._damage,
            "attack": self._attack,
            "end attack": lambda step: stage.end_attack(),
            "settle": lambda step: self._settle(),
        }

    async def step(self, step: Step) -> None:
        """Do a step; what is refused, or refers to what came to nothing, is passed over."""
        began = time.monotonic()
        try:
            await self._doing[step.do](step)
        except (SubletError, NotRunning, _Nothing):
            self._verdict.refused += 1
        except TimeoutError:
            self._verdict.errors.append(f"step {step}: no answer")
        except INNER_ERRORS as error:
            self._verdict.errors.append(f"step {step}: {error!r}")
        else:
            self._verdict.operations += "room" in step.args or step.do in ("room", "profile")
        self._verdict.operating_seconds = max(self._verdict.operating_seconds, time.monotonic() - began)

    # What steps are about.

    def _place(self, step: Step) -> RoomId:
        room = self._rooms.get(step.args["room"])
        if room is None:
            raise _Nothing
        return room

    def _of(self, step: Step) -> str:
        refs = self._refs.get(step.args["of"])
        if not refs:
            raise _Nothing
        return refs[0]

    def _writer(self, step: Step) -> str:
        return f"d{step.who}~{self._lives.get(step.who, 0)}" + ("copy" if step.args.get("copy") else "")

    async def _do(self, step: Step, operation: str, **arguments: Any) -> Any:
        return await self._stage.call(
            step.who, operation, of_copy=bool(step.args.get("copy")), room_id=self._place(step), **arguments
        )

    def _promise(self, step: Step, key: tuple[str, ...], value: Any, seen: Shown | None = None) -> None:
        room = self._place(step) if "room" in step.args else ""
        me = ("member", self._stage.entity(step.who))
        is_in = set(self._promises.value(room, me)) if room and key != me else {True}
        if False in is_in:
            if True in is_in:  # who brought it back had not seen that it was gone: what it writes may count
                self._promises.release(room, key)
            return  # whoever was removed and does not know it yet writes what does not count
        self._promises.make(Promise(step.number, room, key, value), self._writer(step), seen)

    async def _seen(self, step: Step) -> Shown | None:
        return await look(self._stage, step.who, self._place(step))

    async def _config_seen(self, step: Step) -> Shown | None:
        return await look_at_config(self._stage, step.who, self._place(step))

    # Operations.

    async def _room(self, step: Step) -> None:
        others = [self._stage.entity(who) for who in self._stage.running() if who != step.who]
        made = await self._stage.call(step.who, "room.create", name=step.args["name"], invite=others)
        room = self._rooms[step.number] = made["room_id"]
        for entity in [self._stage.entity(step.who), *others]:
            self._promises.make(Promise(step.number, room, ("member", entity), True), self._writer(step))
            self._invited[room, entity] += 1
        self._promises.make(Promise(step.number, room, ("name",), step.args["name"]), self._writer(step))
        await self._until_in(room)

    async def _until_in(self, room: RoomId) -> None:
        """Wait until all who run and reach each other are in a new room; some may not, which is told at the end."""
        with anyio.move_on_after(JOIN_SECONDS):
            coming = [who for who in self._stage.running() if who not in self._asking]
            while any([await self._shown(who, room) is None for who in coming]):
                await anyio.sleep(LOOK_SECONDS / 5)

    async def _send(self, step: Step) -> None:
        ext: dict[str, Any] = {}
        if "reply" in step.args:
            ext["reply_to"] = self._of(Step(step.number, step.who, "", {"of": step.args["reply"]}))
        if "thread" in step.args:
            ext["thread"] = self._of(Step(step.number, step.who, "", {"of": step.args["thread"]}))
        if "channel" in step.args:
            ext["channels"] = [step.args["channel"]]
        if "file" in step.args:
            data = Random(step.args["file"]["fill"]).randbytes(step.args["file"]["size"])
            kept = await self._do(
                step, "media.upload", data=data, media_type="application/octet-stream", filename=f"f{step.number}"
            )
            ext["media"] = kept["blob_hash"]
        before = (await self._do(step, "timeline.list", limit=1, before=None, peek=True))["refs"]
        sent = await self._do(step, "message.send", body=step.args["body"], ext=ext or None)
        self._sent(step, sent["ref_id"], step.args["body"])
        if before:
            self._promise(step, ("behind", sent["ref_id"]), before[-1]["ref_id"])
        if "media" in ext:
            self._promise(step, ("file", sent["ref_id"]), ext["media"])

    def _sent(self, step: Step, ref: str, body: str) -> None:
        self._refs.setdefault(step.number, []).append(ref)
        self._promise(step, ("sent", ref), True)
        self._promise(step, ("body", ref), body)

    async def _send_many(self, step: Step) -> None:
        for number in range(step.args["count"]):
            sent = await self._do(step, "message.send", body=(body := f"{step.number}.{number}"))
            self._sent(step, sent["ref_id"], body)

    async def _edit_many(self, step: Step) -> None:
        refs = self._refs.get(step.args["of"])
        if not refs:
            raise _Nothing
        for ref in refs[:: step.args["part"]]:
            await self._edited(step, ref, f"{step.number}: edited {ref[-4:]}")

    async def _edit(self, step: Step) -> None:
        await self._edited(step, self._of(step), step.args["body"])

    async def _edited(self, step: Step, ref: str, body: str) -> None:
        await self._do(step, "mutable.update", ref_id=ref, body=body)
        self._promise(step, ("body", ref), body)

    async def _take_down(self, step: Step) -> None:
        ref = self._of(step)
        await self._do(step, "message.delete" if step.do == "delete" else "moderation.redact", ref_id=ref)
        self._promise(step, ("gone", ref), True)

    async def _purge(self, step: Step) -> None:
        ref = self._of(step)
        await self._do(step, "purge.message", ref_id=ref)
        self._promise(step, ("purged", ref), True)

    async def _react(self, step: Step) -> None:
        ref, emoji = self._of(step), step.args["emoji"]
        there = step.do == "react"
        await self._do(step, "reactions.add" if there else "reactions.remove", ref_id=ref, emoji=emoji)
        self._promise(step, ("reaction", ref, self._stage.entity(step.who), emoji), there)

    async def _pin(self, step: Step) -> None:
        ref, seen = self._of(step), await self._seen(step)
        await self._do(step, f"moderation.{step.do}", ref_id=ref)
        self._promise(step, ("pinned", ref), step.do == "pin", seen)

    async def _share(self, step: Step) -> None:
        ref = self._of(step)
        await self._do(step, "collab.update_acl", ref_id=ref, mode="room_members")
        self._promises.release(self._place(step), ("body", ref))

    async def _write(self, step: Step) -> None:
        ref, character = self._of(step), chr(FIRST_CHARACTER + step.number)
        text = (await self._do(step, "collab.connect", ref_id=ref))["text"]
        index = int(step.args["at"] * len(text))
        await self._do(step, "collab.edit", ref_id=ref, index=index, insert=character * step.args["count"])
        self._promise(step, ("characters", ref, character), step.args["count"])

    async def _cut_text(self, step: Step) -> None:
        ref = self._of(step)
        text = (await self._do(step, "collab.connect", ref_id=ref))["text"]
        index = int(step.args["at"] * len(text))
        gone = text[index : index + step.args["count"]]
        if not gone:
            raise _Nothing
        await self._do(step, "collab.edit", ref_id=ref, index=index, delete=len(gone))
        for character in set(gone):
            self._promises.release(self._place(step), ("characters", ref, character))
            if character not in text[:index] + text[index + len(gone) :] and ord(character) >= FIRST_CHARACTER:
                self._promise(step, ("characters", ref, character), 0)

    async def _name(self, step: Step) -> None:
        seen = await self._config_seen(step)
        await self._do(step, "room.update_config", changes={"name": step.args["name"]})
        self._promise(step, ("name",), step.args["name"], seen)

    async def _hint(self, step: Step) -> None:
        seen, field = await self._config_seen(step), "ext.channels.hints"
        value = [{"id": step.args["channel"], "name": step.args["name"]}]
        await self._do(step, "room.update_config", changes={field: value})
        self._promise(step, ("config", field), value, seen)

    async def _profile(self, step: Step) -> None:
        await self._stage.call(step.who, "profile.update", body=step.args["body"])
        self._promise(step, ("profile", self._stage.entity(step.who)), step.args["body"])

    async def _read(self, step: Step) -> None:
        await self._do(step, "receipts.update", ref_id=self._of(step))
        self._promise(step, ("read", self._stage.entity(step.who)), True)

    # Who is a member.

    async def _kick(self, step: Step) -> None:
        seen, whom = await self._seen(step), step.args["whom"]
        await self._do(step, "room.kick", entity=self._stage.entity(whom))
        self._promise(step, ("member", self._stage.entity(whom)), False, seen)
        writer = f"d{whom}~{self._lives.get(whom, 0)}"

        async def as_it_was(_: int, __: RoomId) -> Shown | None:
            return seen

        await self._promises.reconsider({writer: writer}, Views(as_it_was, [self._place(step)], [step.who]))

    async def _leave(self, step: Step) -> None:
        seen = await self._config_seen(step)
        await self._do(step, "room.leave")
        self._promise(step, ("member", self._stage.entity(step.who)), False, seen)

    async def _invite(self, step: Step) -> None:
        seen, whom = await self._config_seen(step), self._stage.entity(step.args["whom"])
        await self._do(step, "room.invite", entity=whom)
        self._invited[self._place(step), whom] += 1
        if (self._place(step), whom) in self._declined:
            # Who has said no is asked no more, so it stays invited; its home may have forgotten that.
            self._promises.release(self._place(step), ("member", whom))
        else:
            self._promise(step, ("member", whom), True, seen)

    async def _ask_first(self, step: Step) -> None:
        await self._stage.ask_first(step.who, step.args["asks"])
        (self._asking.add if step.args["asks"] else self._asking.discard)(step.who)

    async def _accept(self, step: Step) -> None:
        room, me = self._place(step), self._stage.entity(step.who)
        await self._do(step, "invitations.accept")
        if (room, me) in self._declined:
            self._promises.release(room, ("member", me))  # whether the no or the yes comes first
            self._declined.discard((room, me))

    async def _decline(self, step: Step) -> None:
        room, me = self._place(step), self._stage.entity(step.who)
        await self._do(step, "invitations.decline")
        self._declined.add((room, me))
        self._promises.release(room, ("member", me))
        if self._invited[room, me] == 1:  # else it may have been invited again before it was heard
            self._promise(step, ("member", me), False)

    async def _power(self, step: Step) -> None:
        await self._do(step, "room.set_power", entity=self._stage.entity(step.args["whom"]), level=step.args["level"])

    async def _let_in(self, step: Step) -> None:
        await self._do(step, "room.invite", entity=await self._stage.attacker())
        await self._settle()

    async def _put_out(self, step: Step) -> None:
        await self._do(step, "room.kick", entity=await self._stage.attacker())
        await self._stage.end_attack()

    async def _attack(self, step: Step) -> None:
        await self._stage.attack(step.args["how"], self._place(step), step.args["seed"])

    # Homes that go back.

    async def _roll_back(self, step: Step) -> None:
        await self._stage.roll_back(step.who)
        await self._gone_back(step.who)

    async def _damage(self, step: Step) -> None:
        await self._stage.damage(step.who, step.args["how"], step.args["seed"])
        self._damaged.setdefault(step.who, self._lives.get(step.who, 0))
        await self._gone_back(step.who)

    async def _start(self, step: Step) -> None:
        await self._stage.start(step.who)
        if step.who in self._damaged:
            await self._reconsider(step.who, self._damaged.pop(step.who))

    async def _gone_back(self, who: int) -> None:
        """Release what nobody else shows of what a home held alone, its own and what others had lost before."""
        life = self._lives.get(who, 0)
        self._lives[who] = life + 1
        await self._reconsider(who, life)

    async def _reconsider(self, who: int, life: int) -> None:
        later = {writer: writer for writer in self._promises.writers() if writer.endswith(BEFORE)}
        await self._promises.reconsider(later | {f"d{who}~{life}": f"d{who}~{life}{BEFORE}"}, self._views(who))
        for room in self._rooms.values():
            if await is_nowhere(self._stage, room, self._daemons):
                self._nowhere.add(room)

    async def _end_copy(self, step: Step) -> None:
        writer = self._writer(step) + "copy"
        await self._promises.reconsider({writer: f"{writer}{BEFORE}"}, self._views())
        await self._stage.end_copy(step.who)

    def _views(self, but: int | None = None) -> Views:
        """Return all rooms as all daemons that run, beside one, show them."""
        members = [who for who in self._stage.running() if who != but]

        async def left(room: RoomId) -> list[Shown] | None:
            return None if but is None else await left_of(self._stage, room, but, self._daemons)

        return Views(self._shown, list(self._rooms.values()), members, left)

    # The end.

    async def _settle(self) -> None:
        """Wait until all who run hold the same, or for a bounded time; what they show is compared at the end."""
        with anyio.move_on_after(SETTLE_SECONDS):
            while True:
                if await self._until_worth_a_look() or not any(await self._unequal()):
                    return
                await anyio.sleep(LOOK_SECONDS)

    async def _until_worth_a_look(self) -> bool:
        """Wait until rooms sum up to the same everywhere, and tell whether they do.

        After a while, and where nobody can say, a look is worth it all the same: what is shown may be equal.
        """
        with anyio.move_on_after(SUMS_SECONDS):
            while (equal := await self._sums_equal()) is False:
                await anyio.sleep(LOOK_SECONDS / 5)
            return equal is True
        return False

    async def _sums_equal(self) -> bool | None:
        """Tell whether all rooms sum up to the same at all their members; None where that can't be told."""
        for room in self._rooms.values():
            if room in self._nowhere and await is_nowhere(self._stage, room, self._daemons):
                continue
            try:
                members = (await self._stage.call(0, "room.get", room_id=room))["members"]
            except (SubletError, NotRunning):
                return None
            there = [who for who in self._stage.running() if self._stage.entity(who) in members]
            sums = {await self._stage.sum_of(who, room) for who in there}
            if any(self._may_stay_out(who, room) for who in there):
                sums.discard(NOWHERE)
            if None in sums:
                return None
            if len(sums) > 1:
                return False
        return True

    async def judge(self, patience: float, forcing: bool) -> Verdict:
        """Wait until all show the same and everything that was promised, and return what came of it."""
        began, before = time.monotonic(), ""
        self._asking.clear()  # what waits for an answer now gets one
        while True:
            await self._until_worth_a_look()
            broken, differ = await self._unequal()
            lost = [f"d{who}: {promise}" for who, promise in broken]
            taken = time.monotonic() - began
            if not lost and not differ:
                self._verdict.seconds = taken if taken <= patience else None
                break
            said = json.dumps([lost, differ])
            if taken > patience or (forcing and taken > patience / 2 and said == before):
                break
            before = said
            if forcing and taken > patience / 2:
                await self._stage.reconcile()
            await anyio.sleep(LOOK_SECONDS)
        self._verdict.lost, self._verdict.differ = lost, differ
        self._verdict.errors += self._stage.offences()
        self._verdict.promises = {(promise.key[0], promise.step) for _, promise in broken}
        return self._verdict

    async def _unequal(self) -> tuple[list[tuple[int, Promise]], list[str]]:
        """Return which daemon does not show what was promised, and how members differ."""
        broken, differ = list[tuple[int, Promise]](), list[str]()
        for room in self._rooms.values():
            first = await self._shown(0, room)
            if first is None:
                if room in self._nowhere and await is_nowhere(self._stage, room, self._daemons):
                    continue
                differ.append(f"d0 does not show {room}")
                for who in range(1, self._daemons):
                    await self._shown(who, room)  # who is invited takes it up, and may tell d0 of it
                continue
            broken += [(0, promise) for promise in self._promises.broken(room, first)]
            for who in self._members(first):
                shown = await self._shown(who, room)
                if shown is None and self._may_stay_out(who, room):
                    continue
                if shown is None:
                    differ.append(f"d{who} does not show {room}")
                    continue
                broken += [(who, promise) for promise in self._promises.broken(room, shown)]
                if shown.same() != first.same():
                    differ.append(f"d0 and d{who}: {first.differs(shown)}")
        return broken, differ

    async def _shown(self, who: int, room: RoomId) -> Shown | None:
        try:
            shown = await look(self._stage, who, room)
            if shown is None and who not in self._asking:
                await self._take_up(who, room)
            return shown
        except INNER_ERRORS as error:
            said = f"d{who} shows a room with {error!r}"
            if said not in self._verdict.errors:
                self._verdict.errors.append(said)
            return None

    def _may_stay_out(self, who: int, room: RoomId) -> bool:
        """Tell whether a member need not be in a room: its person has said no, or says nothing before the end."""
        return who in self._asking or (room, self._stage.entity(who)) in self._declined

    async def _take_up(self, who: int, room: RoomId) -> None:
        """Say yes to an invitation that waits, as people do who are not said to do anything else."""
        with suppress(SubletError, NotRunning):
            waiting = await self._stage.call(who, "invitations.list")
            if any(one["room_id"] == room and one["answer"] == "pending" for one in waiting):
                await self._stage.call(who, "invitations.accept", room_id=room)

    def _members(self, shown: Shown) -> list[int]:
        """Return the daemons, beside the first, that a room has as members."""
        entities: dict[EntityId, int] = {self._stage.entity(who): who for who in range(1, self._daemons)}
        return sorted(entities[one] for one in shown.members if one in entities)


class _Nothing(Exception):
    """The step refers to one that came to nothing."""
