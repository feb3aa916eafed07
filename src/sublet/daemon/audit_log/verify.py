"""Checks the whole log: nothing changed, removed, inserted, out of order or cut off (``sublet audit verify``)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sublet.daemon.audit_log.chain import EMPTY, NOTHING, BrokenChain, Head, parse_entry, read_entry
from sublet.daemon.audit_log.segments import lines, segments, torn


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the store remembers of the log: its head, and the last entry that retention has removed.

    ``closed`` tells that the head is the last entry of all, as it was when the daemon stopped in order; ``at_all`` is
    False where the store has never heard of a log.
    """

    head: Head = EMPTY
    anchor: Head = EMPTY
    closed: bool = False
    at_all: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found.

    ``first`` and ``last`` are the numbers of the entries that are there; ``signed`` is the last one that a valid
    checkpoint covers; ``problem`` is empty for an unbroken chain.
    """

    entries: int
    first: int
    last: int
    signed: int
    problem: str = ""


def verify(directory: Path, remembered: Remembered | None, key: bytes | None, *, upto: int | None = None) -> Verdict:
    """Return what became of the log. Blocks on the disk: call it in a thread.

    Args:
        directory: where its files are.
        remembered: what the store says; None where the files are all there is.
        key: the daemon's raw public key; None leaves signatures unchecked.
        upto: number of the last entry to look at, where more are being written; None is the end of the files.
    """
    found = segments(directory) if directory.is_dir() else []
    anchor = remembered.anchor if remembered else Head(found[0][0] - 1 if found else 0, "")
    head, wanted = anchor, remembered.head if remembered else EMPTY
    first, signed, met = head.seq + 1, anchor.seq, wanted.seq <= anchor.seq
    try:
        for index, (number, path) in enumerate(found):
            if number <= anchor.seq:
                continue  # removed by retention, which a crash has kept from its end
            if number != head.seq + 1:
                raise BrokenChain(f"{path.name} is not what follows entry {head.seq}: a file is missing, or added")
            for line in lines(path):
                if upto is not None and head.seq >= upto:
                    break
                if head.hash == "":
                    head = Head(head.seq, _claimed_previous(line))
                entry, head = read_entry(line, head, key)
                if entry.get("kind") == "gap":
                    raise BrokenChain(f"entry {head.seq} tells that the log was found cut off or changed at a start")
                if entry.get("kind") == "checkpoint":
                    signed = head.seq - 1
                if head.seq == wanted.seq:
                    met = True
                    if head.hash != wanted.hash:
                        raise BrokenChain(f"entry {head.seq} is not the one that the store remembers: it was changed")
            if upto is not None and head.seq >= upto:
                break
            _, rest = torn(path)
            if rest and index < len(found) - 1:
                raise BrokenChain(f"{path.name} ends in the middle of an entry, and others follow")
            if rest:
                raise BrokenChain(f"something that is no entry stands after entry {head.seq}")
        if not met:
            raise BrokenChain(f"the store remembers entry {wanted.seq}, and the log ends at {head.seq}: it was cut off")
    except BrokenChain as broken:
        return Verdict(head.seq - first + 1, first, head.seq, signed, str(broken))
    except OSError as error:
        return Verdict(head.seq - first + 1, first, head.seq, signed, f"a file can't be read: {error}")
    return Verdict(head.seq - first + 1, first, head.seq, signed)


def _claimed_previous(line: bytes) -> str:
    """Return what the first line says came before it, where nobody remembers that."""
    return str(parse_entry(line).get("prev", NOTHING))
