"""One text that several write: its parts in order, what was deleted of them, and edits of it as updates.

No CRDT library reads the updates of others: each of them costs its own size here, whatever was written at the same
place at the same time, and none can make a library panic. What is made here equals what yrs makes (``tests``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sublet.messaging.documents.ordered import Ranges
from sublet.messaging.texts.text_order import TextOrder
from sublet.protocol.ezagent.yjs.encode import Transaction
from sublet.protocol.ezagent.yjs.update import Deletion, Item, ItemId, Value

_UNIT = 2
"""Bytes of one place of a text, a unit of UTF-16."""


@dataclass(slots=True)
class TextBody:
    """See the module.

    Args:
        root: name of the root type.
    """

    root: str
    _order: TextOrder = field(default_factory=TextOrder)
    _deleted: dict[int, Ranges] = field(default_factory=dict)
    _value: str | None = None

    @property
    def value(self) -> str:
        """All characters that are shown, in the order that all replicas agree on."""
        if self._value is None:
            whole = b"".join(text for _, _, text in self._pieces())
            self._value = whole.decode("utf-16-le", "surrogatepass")
        return self._value

    def place(self, client: int, items: Iterable[Item], *, shown: bool = True) -> bool:
        """Put in parts; see ``TextOrder.place``."""
        self._value = None
        return self._order.place(client, items, shown=shown)

    def delete(self, cuts: Iterable[Deletion]) -> None:
        """Take characters out, also such as come later."""
        for cut in cuts:
            self._deleted.setdefault(cut.client, Ranges()).add(cut.clock, cut.clock + cut.length)
            self._value = None

    def edit(
        self,
        transaction: Transaction,
        start: int,
        end: int,
        insert: str,
        marks: Mapping[str, tuple[str | ItemId, ItemId | None, Value]],
    ) -> None:
        """Write an edit into a transaction; nothing changes here until it is taken as any other update.

        Args:
            transaction: of the writer.
            start: the first character to take out.
            end: the one after the last.
            insert: what comes in their place.
            marks: keys to set beside the text: the map that has each, the item that now stands for it, and its value.
        """
        first = len(self.value[:start].encode("utf-16-le"))
        last = first + len(self.value[start:end].encode("utf-16-le"))
        before: ItemId | None = None
        at = 0
        for client, clock, text in self._pieces():
            begin, finish = max(first, at), min(last, at + len(text))
            if begin < finish:
                transaction.delete(Deletion(client, clock + (begin - at) // _UNIT, (finish - begin) // _UNIT))
            if at < first:
                before = client, clock + (min(first, at + len(text)) - at) // _UNIT - 1
            at += len(text)
            if at >= last and at >= first:
                break
        if insert:
            transaction.insert_text(self.root, before, self._order.behind(before), insert)
        for key, (parent, previous, value) in marks.items():
            transaction.set_key(parent, key, previous, value)

    def _pieces(self) -> Iterator[tuple[int, int, bytes | memoryview]]:
        """Yield client, clock and text of what is shown, in order."""
        for run in self._order:
            if not run.text:
                continue
            deleted = self._deleted.get(run.client)
            if deleted is None:
                yield run.client, run.clock, run.text
                continue
            for start, end in deleted.left(run.clock, run.clock + run.length):
                yield run.client, start, run.text[(start - run.clock) * _UNIT : (end - run.clock) * _UNIT]
