"""Tokens on the links of peers: which of ours are announced, and which of theirs are there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sublet.messaging.links.declared import MAX_ANNOUNCED

MAX_TOKENS_OF_LINK: Final = 65_536
"""Tokens that are remembered of one link: a relay shows those of many, while a peer declares far less."""
Undo = Callable[[], None]


class Announced:
    """Tokens of ours, of which a bounded number is announced; the first ones, and others as those end.

    Args:
        declare: announces one on all links; its result ends that.
    """

    def __init__(self, declare: Callable[[str], Undo]) -> None:
        self._declare = declare
        self._lock = threading.Lock()
        self._numbers = 0
        self._live: dict[int, Undo] = {}
        self._waiting: dict[int, str] = {}

    def add(self, key: str) -> Undo:
        """Announce a token, now or once there is room; the result ends it."""
        with self._lock:
            self._numbers += 1
            number = self._numbers
            self._waiting[number] = key
            self._fill()

        def end() -> None:
            with self._lock:
                self._waiting.pop(number, None)
                undo = self._live.pop(number, None)
                if undo is not None:
                    undo()
                self._fill()

        return end

    def _fill(self) -> None:
        while self._waiting and len(self._live) < MAX_ANNOUNCED:
            number = next(iter(self._waiting))
            self._live[number] = self._declare(self._waiting.pop(number))


@dataclass(slots=True, eq=False)
class Following:
    """Who has a token that somebody here follows; any thread may call.

    Args:
        callback: told whether there is one, whenever that changes.
    """

    callback: Callable[[bool], None]
    _there: dict[str, set[str]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def took(self, link: str, key: str, there: bool) -> None:
        """Note that a token came or went on a link."""

        def change() -> None:
            keys = self._there.setdefault(link, set())
            (keys.add if there else keys.discard)(key)

        self._change(change)

    def gone(self, link: str) -> None:
        """Note that all tokens of a link are gone."""
        self._change(lambda: self._there.pop(link, None))

    def _change(self, change: Callable[[], object]) -> None:
        with self._lock:
            before = any(self._there.values())
            change()
            after = any(self._there.values())
        if before != after:
            self.callback(after)


class Tokens:
    """Which tokens peers have on their links, as many as a link may have, and who follows them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._there: dict[str, set[str]] = {}
        self._following: dict[str, list[Following]] = {}

    def follow(self, key: str, following: Following) -> Undo:
        """Tell somebody of a token from now on; the result ends it."""
        with self._lock:
            self._following.setdefault(key, []).append(following)
            links = [link for link, keys in self._there.items() if key in keys]
        for link in links:
            following.took(link, key, there=True)

        def end() -> None:
            with self._lock:
                left = [one for one in self._following.pop(key, []) if one is not following]
                if left:
                    self._following[key] = left

        return end

    def took(self, link: str, key: str, there: bool) -> None:
        """Note that a token came or went on a link."""
        with self._lock:
            keys = self._there.setdefault(link, set())
            if there and len(keys) >= MAX_TOKENS_OF_LINK:
                return
            (keys.add if there else keys.discard)(key)
            following = list(self._following.get(key, ()))
        for one in following:
            one.took(link, key, there)

    def count(self) -> int:
        """Return how many tokens are there."""
        with self._lock:
            return sum(map(len, self._there.values()))

    def gone(self, link: str) -> None:
        """Note that all tokens of a link are gone."""
        with self._lock:
            gone = self._there.pop(link, set())
            following = [one for key in gone for one in self._following.get(key, ())]
        for one in following:
            one.gone(link)
