"""What is amiss between a delegator and an executor that works: words that don't come, and files out of its reach."""

from __future__ import annotations

from sublet.daemon.api.delegation_views import ConditionView
from sublet.daemon.ports.peer_link import Silence
from sublet.protocol.messages import MAX_WAITING_CHARS, Progress
from sublet.protocol.text import clean_line


class PeerCondition:
    """Keeps the kinds of trouble apart, since each begins and ends by itself; silence is shown first."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._silence = ""
        self._link = ""
        self._cut = False
        self._waiting = ""
        self._question = ""

    @property
    def link_is_down(self) -> bool:
        """Whether the executor said that it can't reach the files."""
        return bool(self._link)

    @property
    def view(self) -> ConditionView | None:
        """What to show."""
        if self._silence:
            detail = f"{self._peer} can't be heard, and is tried again until the lease ends: {self._silence}"
            return ConditionView(kind="unresponsive", detail=detail)
        if self._link or self._cut:
            none = f"{self._peer} has no connection to the files; it may come back until the lease ends"
            return ConditionView(kind="degraded", detail=self._link or none)
        if self._waiting:
            return ConditionView(kind="waiting_for_approval", detail=f"{self._peer}: {self._waiting}")
        if self._question:
            return ConditionView(kind="waiting_for_answer", detail=f"{self._peer} asks: {self._question}")
        return None

    def see(self, connected: bool) -> bool:
        """Take what our own server sees of the connections to the files, and tell whether that changes ``view``."""
        before = self.view
        self._cut = not connected
        return self.view != before

    def hear(self, update: Progress | Silence) -> bool:
        """Take what ``update`` says of it, and tell whether that changes ``view``."""
        before = self.view
        if isinstance(update, Silence):
            self._silence = update.reason
            return self.view != before
        self._waiting = clean_line(update.waiting or "", MAX_WAITING_CHARS)
        self._question = clean_line(update.question or "", MAX_WAITING_CHARS)
        if update.link == "up":
            self._link = ""
        elif update.link == "down" and not self._link:
            said = clean_line(update.text) or "it lost the link to the files and tries to get it back"
            self._link = f"{self._peer}: {said}"
        return self.view != before
