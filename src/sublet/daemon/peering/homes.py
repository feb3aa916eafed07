"""Notices that a paired daemon runs twice: from its home and from a copy of it, which has the same key.

Rules: of two homes that are seen at once the one that came from the other is refused, or the one that came later where
that can't be told; it stays refused until it is paired anew. A home that came to another place and runs there alone is
the same daemon as before. Any thread may call. Weak: of two that are never seen at once nothing is known.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from sublet.daemon.peering.peers import Peer
from sublet.disk.durable import write_whole
from sublet.disk.plain_file import read_plain
from sublet.protocol.home_token import OWN_HOME, HomeToken, parse_home
from sublet.protocol.text import clean_line
from sublet.protocol.times import unix_seconds

MAX_FILE_BYTES: Final = 1 << 20
MAX_MET: Final = 64
"""Homes of one daemon that are remembered in the order in which they were met."""
MAX_REFUSED: Final = 16
"""Copies of one daemon that are remembered."""
MAX_REFUSING: Final = 16
"""Peers that refuse this home and are named."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Known:
    """The home of one peer, copies of it with the Unix seconds when they were noticed, and all tokens, oldest first."""

    home: HomeToken
    refused: dict[str, float] = field(default_factory=dict)
    met: list[str] = field(default_factory=list)

    def meet(self, home: HomeToken) -> None:
        """Note that a home was met; of many the first ones count."""
        if home.token not in self.met and len(self.met) < MAX_MET:
            self.met.append(home.token)

    def is_older(self, one: HomeToken, other: HomeToken) -> bool:
        """Tell whether a home was there before another: that came from it, or was met later."""
        if one.comes_from(other) or other.comes_from(one):
            return other.comes_from(one)
        place = {token: number for number, token in enumerate(self.met)}
        return place.get(one.token, MAX_MET) < place.get(other.token, MAX_MET)


class Homes:
    """See the module.

    Args:
        file: where it is kept; made anew where it can't be read.
        find: returns the peer of a node id.
        clock: Unix time in seconds.
    """

    def __init__(self, file: Path, find: Callable[[str], Peer | None], clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._find = find
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = _read(file)
        self._refusing: set[str] = set()
        self._linked: dict[str, list[str]] = {}

    def opened(self, node_id: str, said: str) -> None:
        """Note that a peer has a link from a home."""
        with self._lock:
            self._linked.setdefault(node_id, []).append(said)

    def ended(self, node_id: str, said: str) -> None:
        """Note that a link has ended."""
        with self._lock:
            left = self._linked.get(node_id, [])
            if said in left:
                left.remove(said)
            if not left:
                self._linked.pop(node_id, None)

    def admits(self, node_id: str, said: str) -> bool:
        """Take that a peer has shown itself, and tell whether it is let in.

        Args:
            node_id: whose key it has proven.
            said: what it says of its home; empty where it says nothing.
        """
        home = parse_home(said)
        peer = self._find(node_id)
        if home is None or peer is None:
            return True
        with self._lock:
            known = self._known.get(node_id)
            if known is None:
                self._known[node_id] = _Known(home, met=[home.token])
                self._keep()
                return True
            self._forgive(known, peer)
            if home.token in known.refused:
                return False
            beside = map(parse_home, self._linked.get(node_id, ()))
            others = [other for other in beside if other is not None and other.token != home.token]
            others = [other for other in others if other.token not in known.refused]
            known.meet(home)
            if any(not known.is_older(home, other) for other in others):
                self._refuse(known, peer, home)
                return False
            for other in others:  # the elder is back, or was slower
                self._refuse(known, peer, other)
            if known.home != home:
                known.home = home
                self._keep()
            return True

    def refused_by(self, peer: str) -> None:
        """Note that a peer refuses this home as a copy of another one."""
        if peer not in self._refusing and len(self._refusing) < MAX_REFUSING:
            log.error("a peer says that this home is a copy of another one that runs", peer=peer, remedy=OWN_HOME)
            self._refusing.add(peer)

    def taken_by(self, peer: str) -> None:
        """Note that a peer takes this home for what it is."""
        self._refusing.discard(peer)

    def remarks(self) -> list[str]:
        """Return what people should know, one line each."""
        lines = [
            f"{clean_line(peer, 80)} says that this home is a copy of another one that runs, and refuses it; "
            f"make this a daemon of its own: sublet down, then {OWN_HOME}"
            for peer in sorted(self._refusing)
        ]
        with self._lock:
            for node_id, known in self._known.items():
                peer = self._find(node_id)
                if peer is not None and known.refused:
                    lines.append(
                        f"{peer.name} runs twice, from its home and from a copy of it; the copy is refused here until "
                        f"it is made a daemon of its own (there: {OWN_HOME}) or {peer.name} is paired anew"
                    )
        return lines

    def _refuse(self, known: _Known, peer: Peer, copy: HomeToken) -> None:
        if copy.token in known.refused:
            return
        log.error("a peer runs twice, and the copy of its home is refused", peer=peer.name, node_id=peer.node_id)
        known.refused[copy.token] = self._clock()
        while len(known.refused) > MAX_REFUSED:
            del known.refused[next(iter(known.refused))]
        self._keep()

    def _forgive(self, known: _Known, peer: Peer) -> None:
        """Take what was refused before a person has paired the two anew for what it says."""
        paired = unix_seconds(peer.paired_at) if peer.paired_at else 0.0
        for token in [one for one, at in known.refused.items() if at < paired]:
            del known.refused[token]
            self._keep()

    def _keep(self) -> None:
        kept = {
            node_id: {"home": known.home.said, "refused": known.refused, "met": known.met}
            for node_id, known in self._known.items()
            if self._find(node_id) is not None
        }
        try:
            write_whole(self._file, json.dumps(kept).encode())
        except OSError as error:
            log.warning("the homes of peers could not be remembered", reason=error.strerror)


def _read(file: Path) -> dict[str, _Known]:
    found: dict[str, _Known] = {}
    try:
        for node_id, kept in json.loads(read_plain(file, MAX_FILE_BYTES, follow=False)).items():
            home = parse_home(kept["home"])
            if home is not None:
                refused = {str(token): float(at) for token, at in kept["refused"].items()}
                found[str(node_id)] = _Known(home, refused, [str(token) for token in kept["met"]][:MAX_MET])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return found
    return found
