"""Makes histories of seeds: the same seed, kind and size give the same steps.

What is made here need not be possible: whoever plays it passes over what is refused, and over what refers to steps that
came to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from support.histories.kinds import DAMAGE, HOSTILE, KINDS, MEMBERS_ATTACK
from support.histories.steps import EVERYBODY, History, Step

MINUTE_MS: Final = 60_000
DAY_MS: Final = 86_400_000
CLOCKS: Final = (-40 * DAY_MS, -DAY_MS, -11 * MINUTE_MS, 11 * MINUTE_MS, 6 * 60 * MINUTE_MS, 40 * DAY_MS)
EMOJIS: Final = ("\N{THUMBS UP SIGN}", "\N{FIRE}", "\N{EYES}")
CHANNELS: Final = ("review", "build", "ideas")
NAMES: Final = ("Work", "Play", "Plans", "Nightly")
WORDS: Final = ("the", "lent", "directory", "is", "ready", "tests", "fail", "again", "merged", "why", "not", "yet")
EDITED_WHILE_AWAY: Final = 40
SENT_WHILE_AWAY: Final = 400
MAX_ROOMS: Final = 4
HONEST: Final = ("kills", "partitions", "rollbacks", "full disks", "clocks", "changes while away")
"""What "everything" is mixed of."""
OPERATIONS: Final = {
    "send": 26,
    "reply": 6,
    "thread": 5,
    "in channel": 4,
    "edit": 14,
    "redact": 3,
    "delete": 2,
    "purge": 3,
    "react": 9,
    "unreact": 4,
    "pin": 3,
    "unpin": 2,
    "share text": 4,
    "write text": 14,
    "cut text": 4,
    "name": 3,
    "hint": 2,
    "profile": 3,
    "read": 5,
    "draft": 2,
    "upload": 3,
    "kick": 1,
    "leave": 1,
    "invite": 2,
    "power": 1,
    "room": 1,
    "ask first": 1,
    "accept": 3,
    "decline": 1,
    "take back": 1,
}
"""How often each is done, against the others."""


def generate(kind: str, seed: int, operations: int, daemons: int | None = None) -> History:
    """Return the history of a seed.

    Args:
        kind: of its faults, one of ``KINDS``.
        seed: decides all that is left.
        operations: how many there are, beside the faults.
        daemons: how many there are; from 2 to 6 as the seed decides by default.
    """
    assert kind in KINDS, kind
    maker = _Maker(kind, seed, operations, daemons)
    return maker.made()


class _Maker:
    def __init__(self, kind: str, seed: int, operations: int, daemons: int | None) -> None:
        self._kind, self._seed, self._left = kind, seed, operations
        self._random = Random(f"{kind} {seed}")
        drawn = self._random.randint(2, 6)
        self._daemons = daemons or drawn
        self._steps: list[Step] = []
        self._rooms: list[int] = []
        self._said: dict[int, list[tuple[int, int]]] = {}
        """Of each room the steps that say something, and who says it."""
        self._texts: dict[int, list[int]] = {}
        """Of each room the messages that several write."""
        self._out: set[tuple[int, int]] = set()
        """Rooms with a daemon that has left it, was removed or has declined, as far as the maker knows."""
        self._asking: set[int] = set()
        """Daemons that take up no room by themselves."""
        self._waiting: set[tuple[int, int]] = set()
        """Rooms with a daemon that has not answered its invitation yet."""

    def made(self) -> History:
        self._room(0)
        self._some(self._random.randint(4, 8))
        while self._left > 0:
            self._fault(self._kind if self._kind != "everything" else self._random.choice(HONEST))
            self._some(self._random.randint(2, 8))
        return History(self._kind, self._seed, self._daemons, tuple(self._steps))

    # Operations.

    def _step(self, who: int, do: str, **args: Any) -> int:
        number = len(self._steps)
        self._steps.append(Step(number, who, do, args))
        return number

    def _room(self, who: int) -> None:
        room = self._step(who, "room", name=self._random.choice(NAMES))
        self._rooms.append(room)
        self._waiting |= {(room, one) for one in self._asking}
        self._said[room], self._texts[room] = [], []

    def _some(self, count: int, who: Sequence[int] = ()) -> None:
        """Let so many operations be done, by these daemons or by any."""
        for _ in range(count):
            self._left -= 1
            do = self._random.choices(list(OPERATIONS), list(OPERATIONS.values()))[0]
            self._operation(self._random.choice(who or range(self._daemons)), do)

    def _operation(self, who: int, do: str) -> None:
        rnd, room = self._random, self._random.choice(self._rooms)
        said = self._said[room]
        mine = [number for number, author in said if author == who and number not in self._texts[room]]
        one = rnd.choice(said)[0] if said else None
        match do:
            case "send":
                said.append((self._step(who, "send", room=room, body=self._words()), who))
            case "reply" | "thread" if one is not None:
                said.append((self._step(who, "send", room=room, body=self._words(), **{do: one}), who))
            case "in channel":
                args = {"channel": rnd.choice(CHANNELS)}
                said.append((self._step(who, "send", room=room, body=self._words(), **args), who))
            case "upload":
                data = {"size": rnd.choice((10, 3_000, 600_000)), "fill": rnd.randint(0, 1 << 30)}
                said.append((self._step(who, "send", room=room, body=self._words(), file=data), who))
            case "edit" if mine:
                self._step(who, "edit", room=room, of=rnd.choice(mine), body=self._words())
            case "delete" if mine:
                self._step(who, "delete", room=room, of=rnd.choice(mine))
            case "redact" if one is not None and one not in self._texts[room]:
                self._step(0, "redact", room=room, of=one)
            case "purge" if one is not None and one not in self._texts[room]:
                self._step(
                    rnd.choice([0, next(author for number, author in said if number == one)]),
                    "purge",
                    room=room,
                    of=one,
                )
            case "react" | "unreact" if one is not None:
                self._step(who, do, room=room, of=one, emoji=rnd.choice(EMOJIS))
            case "pin" | "unpin" if one is not None:
                self._step(0, do, room=room, of=one)
            case "share text" if mine:
                self._texts[room].append(shared := rnd.choice(mine))
                self._step(who, "share text", room=room, of=shared)
            case "write text" | "cut text" if self._texts[room]:
                of = rnd.choice(self._texts[room])
                self._step(who, do, room=room, of=of, at=round(rnd.random(), 3), count=rnd.randint(1, 3))
            case "name":
                self._step(0, "name", room=room, name=f"{rnd.choice(NAMES)} {rnd.randint(0, 999)}")
            case "hint":
                self._step(0, "hint", room=room, channel=rnd.choice(CHANNELS), name=self._words())
            case "profile":
                self._step(who, "profile", body=self._words())
            case "read" if one is not None:
                self._step(who, "read", room=room, of=one)
            case "draft":
                self._step(who, "draft", room=room, body=self._words())
            case "kick" if who != 0 and self._daemons > 2:
                self._step(0, "kick", room=room, whom=who)
                self._out.add((room, who))
            case "leave" if who != 0 and self._daemons > 2:
                self._step(who, "leave", room=room)
                self._out.add((room, who))
            case "invite" if self._out:
                room, whom = rnd.choice(sorted(self._out))
                self._step(0, "invite", room=room, whom=whom)
                self._out.discard((room, whom))
                if whom in self._asking:
                    self._waiting.add((room, whom))
            case "ask first" if who != 0:
                self._asking ^= {who}
                self._step(who, "ask first", asks=who in self._asking)
            case "accept" | "decline" | "take back" if self._waiting:
                room, whom = rnd.choice(sorted(self._waiting))
                self._waiting.discard((room, whom))
                if do == "take back":
                    self._step(0, "kick", room=room, whom=whom)
                else:
                    self._step(whom, do, room=room)
                if do != "accept":
                    self._out.add((room, whom))
            case "power" if who != 0:
                self._step(0, "power", room=room, whom=who, level=rnd.choice((0, 50)))
            case "room" if len(self._rooms) < MAX_ROOMS:
                self._room(0)

    def _words(self) -> str:
        """Return a text of its own: the number of the step is in it."""
        count = self._random.randint(1, 8)
        return f"{len(self._steps)}: " + " ".join(self._random.choice(WORDS) for _ in range(count))

    # Faults.

    def _fault(self, kind: str) -> None:
        victim = self._random.randrange(self._daemons)
        others = [who for who in range(self._daemons) if who != victim]
        if kind in HOSTILE:
            self._attack(kind, victim)
        elif kind in DAMAGE:
            self._damage(kind, victim, others)
        else:
            made: dict[str, Callable[[int, list[int]], None]] = {
                "kills": self._kill,
                "partitions": self._partition,
                "rollbacks": self._roll_back,
                "full disks": self._full,
                "clocks": self._clock,
                "copies": self._copy,
                "changes while away": self._changes_while_away,
                "many while away": self._many_while_away,
            }
            if kind in made:
                made[kind](victim, others)

    def _kill(self, victim: int, others: list[int]) -> None:
        self._step(victim, "kill")
        self._some(self._random.randint(0, 8), others)
        self._step(victim, "start")

    def _partition(self, victim: int, others: list[int]) -> None:
        one = sorted({victim, *self._random.sample(others, self._random.randint(0, len(others) - 1))})
        two = [who for who in range(self._daemons) if who not in one]
        self._step(EVERYBODY, "cut", groups=[one, two])
        self._some(self._random.randint(2, 12))
        self._step(EVERYBODY, "heal")

    def _roll_back(self, victim: int, others: list[int]) -> None:
        self._step(victim, "save")
        self._some(self._random.randint(2, 10))
        self._step(victim, "roll back")

    def _full(self, victim: int, others: list[int]) -> None:
        self._step(victim, "fill")
        self._some(self._random.randint(2, 10))
        self._step(victim, "make room")

    def _clock(self, victim: int, others: list[int]) -> None:
        self._step(victim, "clock", ms=self._random.choice(CLOCKS))
        room = self._random.choice(self._rooms)
        self._said[room].append((self._step(victim, "send", room=room, body=self._words()), victim))
        self._some(self._random.randint(2, 10))
        self._step(victim, "clock", ms=0)

    def _copy(self, victim: int, others: list[int]) -> None:
        self._step(victim, "copy")
        self._some(self._random.randint(2, 8))
        room = self._random.choice(self._rooms)
        for _ in range(self._random.randint(1, 3)):
            self._step(victim, "send", room=room, body=self._words(), copy=True)
        self._step(victim, "end copy")

    def _changes_while_away(self, victim: int, others: list[int]) -> None:
        room, author = self._random.choice(self._rooms), self._random.choice(others)
        old = self._step(author, "send", room=room, body=self._words())
        text = self._step(author, "send", room=room, body=self._words())
        self._texts[room].append(text)
        self._said[room] += [(old, author), (text, author)]
        self._step(author, "share text", room=room, of=text)
        many = self._step(author, "send many", room=room, count=EDITED_WHILE_AWAY)
        self._step(author, "edit many", room=room, of=many, part=1)
        self._step(EVERYBODY, "settle")
        self._step(EVERYBODY, "cut", groups=[[victim], others])
        self._step(author, "edit", room=room, of=old, body=self._words())
        for who in [author, self._random.choice(others)]:
            self._step(who, "write text", room=room, of=text, at=round(self._random.random(), 3), count=2)
        self._some(self._random.randint(0, 4), others)
        self._step(EVERYBODY, "heal")
        self._left -= 10

    def _many_while_away(self, victim: int, others: list[int]) -> None:
        room, author = self._random.choice(self._rooms), self._random.choice(others)
        self._step(EVERYBODY, "settle")
        self._step(EVERYBODY, "cut", groups=[[victim], others])
        many = self._step(author, "send many", room=room, count=SENT_WHILE_AWAY)
        self._step(author, "edit many", room=room, of=many, part=1)
        self._some(self._random.randint(0, 4), others)
        self._step(EVERYBODY, "heal")
        self._left -= SENT_WHILE_AWAY // 8

    def _damage(self, kind: str, victim: int, others: list[int]) -> None:
        self._step(EVERYBODY, "settle")
        self._step(victim, "kill")
        self._step(victim, "damage", how=kind, seed=self._random.randint(0, 1 << 30))
        self._some(self._random.randint(0, 4), others)
        self._step(victim, "start")

    def _attack(self, kind: str, victim: int) -> None:
        room = self._random.choice(self._rooms)
        if kind in MEMBERS_ATTACK:
            self._step(0, "let in", room=room)
        self._step(EVERYBODY, "attack", how=kind, room=room, seed=self._random.randint(0, 1 << 30))
        self._some(self._random.randint(2, 6))
        self._said[room].append((self._step(0, "send", room=room, body=self._words()), 0))
        if self._random.random() < 0.5:
            self._kill(victim, [who for who in range(self._daemons) if who != victim])
        if kind in MEMBERS_ATTACK:
            self._step(0, "put out", room=room)
        else:
            self._step(EVERYBODY, "end attack")
