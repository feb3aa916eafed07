"""Kills a purge at every line that it runs, and says what is left each time, and after the next start.

Usage: python -m support.purge_kills DIRECTORY [EVERY], with ``tests`` on the path. It prints one JSON object: how many
kills there were, in how many of them the message was whole or gone after the next start, or ``wrong`` with what was
found.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from sublet.messaging.backends.blob_files import FileBlobs
from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.engine.engine import Engine
from sublet.messaging.erasing.erasing import Erasing
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.extensions.media import _keep
from support.line_kills import killed_at
from support.rooms import Peer

MAX_LINES: Final = 20_000
EVERY: Final = 23
"""Lines between two kills; all of them are tried with 1 as the second argument."""
SECRET: Final = "the horse is called Xenophon, and nobody may know of it"
_TRACED: Final = tuple(
    f"{os.sep}sublet{os.sep}messaging{os.sep}{part}"
    for part in (
        f"purging{os.sep}",
        f"erasing{os.sep}",
        f"backends{os.sep}sqlite_purges.py",
        f"builtins{os.sep}purge.py",
    )
)


class FilePeer(Peer):
    """A peer whose files are on the disk as well."""

    def open(self) -> None:
        assert self.path is not None
        self.store = SqliteStore(self.path)
        self.blobs = FileBlobs(self.path.with_name("blobs"), 1 << 30)  # type: ignore[assignment]
        self.engine = Engine(Registry(self.declarations), self.store, [self.entity], self.clock, self.blobs)


def opened(place: Path, nonce: int) -> FilePeer:
    return FilePeer("alice", nonce, path=place / "messaging.db", declarations=(*BUILT_INS, *EXTENSIONS))


def finish(peer: Peer) -> None:
    """Do what a daemon does after its start, until nothing is due."""
    anyio.run(finished, peer)


async def finished(peer: Peer) -> None:
    """Do the same where an event loop runs already."""
    peer.engine.commit()
    tool = erasing(peer)
    await tool._settle()
    assert await tool.everything()


def erasing(peer: Peer) -> Erasing:
    """Return what erases over a peer whom nobody answers."""

    async def call(run: Callable[[Engine], Any]) -> Any:
        answer = run(peer.engine)
        peer.engine.commit()
        return answer

    async def fetch(key: str, body: bytes) -> list[bytes]:
        return []

    assert peer.path is not None
    return Erasing(call, peer.path, fetch)


def make(place: Path) -> tuple[str, str]:
    """Make a home with a message that was edited and has a file; return the room and the message."""
    place.mkdir(parents=True)
    peer = opened(place, 1)
    room = str(peer.do("room.create", name="r")["room_id"])
    context = OperationContext(peer.engine.operating, peer.id)
    file = _keep(context, room, SECRET.encode(), "text/plain", "plan.txt")
    peer.engine.commit()
    ref = str(peer.do("message.send", room_id=room, body=SECRET, ext={"media": file["blob_hash"]})["ref_id"])
    peer.do("mutable.update", room_id=room, ref_id=ref, body=SECRET + " at all")
    with peer.store.transaction():
        peer.store.search.put(1, ref, SECRET, "0")
    peer.store.close()
    return room, ref


def purge(place: Path, room: str, ref: str) -> None:
    """Purge the message, and its file."""
    peer = opened(place, 2)
    peer.do("purge.message", room_id=room, ref_id=ref)
    finish(peer)
    peer.store.close()


def judge(place: Path, room: str, ref: str) -> str:
    """Return ``whole`` or ``gone`` after a start, or what else is there."""
    peer = opened(place, 3)
    finish(peer)
    found = peer.do("timeline.get_ref", room_id=room, ref_id=ref)
    peer.store.close()
    left = [one.name for one in place.rglob("*") if one.is_file() and b"Xenophon" in one.read_bytes()]
    if found["body"] == SECRET + " at all" and "purged" not in found:
        return "whole"
    return "gone" if "purged" in found and not left else f"{found.get('purged')} and left in {left}"


def main(directory: str, every: int = EVERY) -> int:
    base = Path(directory)
    room, ref = make(base / "first")
    found: Counter[str] = Counter()
    wrong: list[str] = []
    kills = 0
    for kill_at in range(1, MAX_LINES, every):
        place = base / "now"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(base / "first", place)
        was_killed = killed_at(kill_at, _TRACED, partial(purge, place, room, ref))
        judged = judge(place, room, ref)
        found[judged] += judged in ("whole", "gone")
        wrong += [f"line {kill_at}: {judged}"] if judged not in ("whole", "gone") else []
        if not was_killed:
            break
        kills += 1
    print(json.dumps({"kills": kills, **found, "wrong": wrong[:20]}))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
