"""Sessions and events for tests of the supervisor, without a daemon around them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sublet.policy.decision import Subject
from sublet.protocol.canonical import JsonValue
from sublet.protocol.chain import Chain
from sublet.protocol.documents import Document, unpacked
from sublet.protocol.events import EventKeys, EventKind
from sublet.supervisor.agent import AgentRunContext
from sublet.supervisor.sessions.control import SessionControl
from sublet.supervisor.sessions.store import SessionStore
from support.jobs import Log, job

NODE = "node-aaaaaaaaaaaaaaaa"


@dataclass(frozen=True)
class Told:
    """One event."""

    kind: EventKind
    keys: EventKeys
    data: Mapping[str, JsonValue]


class Events:
    """An ``Emit`` that keeps everything."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.documents: dict[str, JsonValue] = {}

    async def __call__(
        self, kind: EventKind, keys: EventKeys, data: Mapping[str, JsonValue], keeps: Sequence[Document] = ()
    ) -> int:
        self.told.append(Told(kind, keys, data))
        self.documents |= {one.digest: unpacked(one) for one in keeps}
        return len(self.told)

    def kinds(self) -> list[str]:
        return [str(told.kind) for told in self.told]

    def of(self, kind: EventKind) -> list[Told]:
        return [told for told in self.told if told.kind is kind]


class Clock:
    """Times as RFC 3339, each later than the one before."""

    def __init__(self) -> None:
        self._seconds = itertools.count()

    def __call__(self) -> str:
        seconds = next(self._seconds)
        return f"2026-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


def control(root: Path, events: Events) -> SessionControl:
    """Return a control plane below ``root``, as a start of the daemon makes it."""
    clock = Clock()
    return SessionControl(SessionStore(root / "sessions", clock), events, clock)


def context(root: Path, events: Events, session_id: str = "", *, chain: Chain | None = None) -> AgentRunContext:
    """Return the context of a call, with a job in a directory of its own."""
    return AgentRunContext(
        finger_session_id=session_id,
        request_id="req_1",
        chain=chain or Chain(),
        emit=events,
        job=job(root, ""),
        report=Log(),
        subject=Subject("human"),
    )
