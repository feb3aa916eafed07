"""A log of events as it came, put in order: each event once, and what was wrong with the log told of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sublet.protocol.events import Event


@dataclass(slots=True)
class Entry:
    """One event of the log; ``contradicted`` where two different ones have its number."""

    event: Event
    out_of_order: bool = False
    copies: int = 0
    contradicted: bool = False
    missing: int | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """The events by their number, which is the order in which they happened, and by what they follow from."""

    entries: Sequence[Entry]
    _after: dict[int, list[Event]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries in the order in which they happened."""
        return iter(self.entries)

    def after(self, seq: int | None) -> Sequence[Event]:
        """Return what follows from the event ``seq``, the earliest first."""
        return () if seq is None else self._after.get(seq, ())


def in_order(events: Iterable[Event]) -> Log:
    """Return the log of ``events``, in whatever order and however often they came."""
    entries: dict[int, Entry] = {}
    highest = 0
    for event in events:
        found = entries.get(event.seq)
        if found is not None:
            found.copies += 1
            found.contradicted = found.contradicted or found.event != event
            continue
        cause = event.keys.causation_id
        late = event.seq < highest or (cause is not None and cause >= event.seq)
        highest = max(highest, event.seq)
        entries[event.seq] = Entry(event, late)
    ordered = [entries[seq] for seq in sorted(entries)]
    after: dict[int, list[Event]] = {}
    for entry in ordered:
        cause = entry.event.keys.causation_id
        if cause is None:
            continue
        after.setdefault(cause, []).append(entry.event)
        if cause not in entries:
            entry.missing = cause
    return Log(ordered, after)
