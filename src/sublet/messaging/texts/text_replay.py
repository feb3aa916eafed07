"""What is taken of one text's log, so that nobody who signs an update spoils the text for others (DESIGN 6.4).

Three kinds of updates are told apart. What counts is applied. What does not count is left out, and only where something
that counts stands beside it is all of that applied too, as deleted, to keep places. And an update that no client of a
text makes, with parts that are no text or that cut a character in two, is left out for good, with all that its client
writes after it: the library would count positions in another way than its readers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from sublet.messaging.texts.text_body import TextBody
from sublet.protocol.ezagent.envelope import Envelope
from sublet.protocol.ezagent.ids import EntityId
from sublet.protocol.ezagent.yjs.update import DELETED, HOLE, MAX_CLOCK, STRING, Deletion, Item, ItemId, Update

MAX_STEP_BYTES: Final = 1 << 20
MAX_STEP_DELETING: Final = 1_000
MAX_CLIENT_BYTES: Final = 8 << 20
"""Of one client's updates of a text: whoever writes more is not read any further, and everybody else still is.

Each client's updates come in one order, so that all peers stop at the same one.
"""
MAX_CLIENT_ITEMS: Final = 1 << 16
"""Of one client's updates of a text, in the same way."""
MOST_ITEMS_OF_EDIT: Final = 16
RUN_BYTES: Final = 1_024
"""What one part of a text takes in memory, about."""
MAX_TEXT_LOG_BYTES: Final = 32 << 20
"""Of all that is applied to one text."""


class LeansOnLeftOut(Exception):
    """Something that counts stands beside something that was left out; begin anew and apply that too."""


@dataclass(slots=True)
class Ended:
    """From whom nothing is taken any more: clients from a clock on, and their signers' updates that only delete.

    Those name no client, and are in the log once where their signer deletes the same again.
    """

    clients: dict[int, int] = field(default_factory=dict)
    signers: set[EntityId] = field(default_factory=set)

    def end(self, signer: EntityId, client: int, clock: int) -> None:
        """Take nothing more."""
        self.clients[client] = min(clock, self.clients.get(client, MAX_CLOCK))
        self.signers.add(signer)

    def holds(self, client: int, clock: int) -> bool:
        """Tell whether a clock of a client is taken no more."""
        return self.clients.get(client, MAX_CLOCK) <= clock


@dataclass(slots=True)
class Replay:
    """A text as far as its log was read.

    Args:
        text: what is taken into.
        is_field: tells whether an item is a key of the map beside the text.
        whole: whether what does not count is applied as deleted.
        ended: from whom nothing is taken any more.
    """

    text: TextBody
    is_field: Callable[[ItemId], bool]
    whole: bool = False
    ended: Ended = field(default_factory=Ended)
    have: dict[int, int] = field(default_factory=dict)
    bytes_of: Counter[int] = field(default_factory=Counter)
    items_of: Counter[int] = field(default_factory=Counter)
    _left_out: dict[int, int] = field(default_factory=dict)
    _highs: set[ItemId] = field(default_factory=set)
    _deleting: set[EntityId] = field(default_factory=set)
    deleted_upto: int = 0
    """The number in the log of the last update that only deletes and was read."""
    is_stale: bool = False
    """Whether something was applied of whose signer nothing that only deletes is taken; begin anew, with ``ended``."""

    def left_out(self, client: int, clock: int) -> bool:
        """Tell whether an item was not taken, and what builds on it would have all of that taken in as deleted."""
        return self._left_out.get(client, MAX_CLOCK) <= clock or self.ended.holds(client, clock)

    def has_room(self, client: int, size: int) -> bool:
        """Tell whether everybody will read as much more of a client."""
        beyond = self.bytes_of.total() + size
        if self.items_of[client] + MOST_ITEMS_OF_EDIT > MAX_CLIENT_ITEMS:
            return False
        return self.bytes_of[client] + size <= MAX_CLIENT_BYTES and beyond <= MAX_TEXT_LOG_BYTES - MAX_STEP_BYTES

    @property
    def size(self) -> int:
        """Return about how many bytes of memory the text takes."""
        return self.bytes_of.total() + RUN_BYTES * self.items_of.total()

    @property
    def is_full(self) -> bool:
        """Tell whether no more is applied."""
        return self.bytes_of.total() >= MAX_TEXT_LOG_BYTES

    def take(self, envelope: Envelope, update: Update, *, counts: bool) -> bool:
        """Take the next update of the log; tell whether it changed the text in the name of its signer.

        Args:
            envelope: which holds the update.
            update: the update.
            counts: whether its signer may write it.

        Raises:
            LeansOnLeftOut: begin anew with ``whole``.
        """
        signer = envelope.signer
        if not update.items and signer in self.ended.signers:
            return False
        if update.items:
            self.have[update.client] = max(update.end, self.have.get(update.client, 0))
            if update.client in self.ended.clients and self.ended.holds(update.client, update.end - 1):
                self._end(signer, update)
                return False
        if not counts and not self.whole:
            if update.items:
                self._left_out.setdefault(update.client, update.start)
            return False
        highs = _highs(update) if counts else set[ItemId]()
        sound = self._is_sound(update, highs, counts=counts)
        if not sound or (update.items and not self._fits(update, len(envelope.raw))):
            self._end(signer, update)
            return False
        if counts and not self.whole and self._leans(update):
            raise LeansOnLeftOut
        if update.items and not self.text.place(update.client, self._parts(update), shown=counts):
            self._end(signer, update)
            return False
        if counts:
            self.text.delete(update.deletions if update.items else self._trimmed(update))
        self._highs |= highs
        if not update.items:
            self._deleting.add(signer)
        return counts

    def wrote(self, update: Update, size: int) -> None:
        """Take an update of ours."""
        self.have[update.client] = update.end
        self.bytes_of[update.client] += size
        self.items_of[update.client] += len(update.items)
        self.text.place(update.client, self._parts(update))
        self.text.delete(update.deletions)
        self._highs |= _highs(update)

    def _fits(self, update: Update, size: int) -> bool:
        self.bytes_of[update.client] += size
        self.items_of[update.client] += len(update.items)
        return self.bytes_of[update.client] <= MAX_CLIENT_BYTES and self.items_of[update.client] <= MAX_CLIENT_ITEMS

    def _end(self, signer: EntityId, update: Update) -> None:
        """Take nothing more of a client, and ask for no more of it."""
        if update.items:
            self.is_stale = self.is_stale or signer in self._deleting
            self.ended.end(signer, update.client, update.start)
            self.have[update.client] = MAX_CLOCK

    def _leans(self, update: Update) -> bool:
        beside = (self._left_out.get(client, MAX_CLOCK) <= clock for client, clock in _beside(update))
        return update.client in self._left_out or any(beside)

    def _is_sound(self, update: Update, highs: set[ItemId], *, counts: bool) -> bool:
        """Tell whether a client of a text may have made an update, and it builds on no other."""
        known = self._highs | highs
        if any(self.ended.holds(client, clock) for client, clock in _beside(update)):
            return False
        if any(_cuts(known, item) for item in update.items):
            return False
        for cut in update.deletions if counts and update.items else ():
            if (cut.client, cut.clock - 1) in known or (cut.client, cut.clock + cut.length - 1) in known:
                return False
        return all(self._is_of_text(update.client, item, counts=counts) for item in update.items)

    def _parts(self, update: Update) -> list[Item]:
        """Return the items of an update that are parts of the text."""
        return [item for item in update.items if item.kind != HOLE and not self.is_field((update.client, item.clock))]

    def _trimmed(self, update: Update) -> list[Deletion]:
        """Return what an update that only deletes takes out, without the halves of characters.

        Each range by itself, so that one within another never takes what the other does not.
        """
        cuts: list[Deletion] = []
        for cut in update.deletions:
            start, end = cut.clock, cut.clock + cut.length
            start += (cut.client, start - 1) in self._highs
            end -= (cut.client, end - 1) in self._highs
            if start < end:
                cuts.append(Deletion(cut.client, start, end - start))
        return cuts

    def _is_of_text(self, client: int, item: Item, *, counts: bool) -> bool:
        """Tell whether an item is a key of the map beside the text, or a part of the text between parts of it."""
        if item.kind == HOLE or self.is_field((client, item.clock)):
            return True
        if item.key is not None or (counts and item.kind not in (STRING, DELETED)):
            return False
        return not any(self.is_field(other) for other in (item.origin, item.right) if other is not None)


def _beside(update: Update) -> Iterator[ItemId]:
    for item in update.items:
        for other in (item.origin, item.right, item.parent):
            if isinstance(other, tuple):
                yield other


def _cuts(highs: set[ItemId], item: Item) -> bool:
    """Tell whether an item stands between the two halves of a character."""
    right = item.right
    return item.origin in highs or (right is not None and (right[0], right[1] - 1) in highs)


def _highs(update: Update) -> set[ItemId]:
    """Return the ids of the first halves of characters that take two places in UTF-16."""
    found: set[ItemId] = set()
    for item in update.items:
        if item.kind != STRING or not isinstance(item.value, str) or item.value.isascii():
            continue
        clock = item.clock
        for char in item.value:
            if ord(char) > 0xFFFF:
                found.add((update.client, clock))
                clock += 1
            clock += 1
    return found
