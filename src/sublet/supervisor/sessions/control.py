"""The session control plane: who takes part in a session, what it is bound to, what it takes (SuperAgent 4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Literal, TypeVar, TypeVarTuple

import anyio
import structlog

from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKeys, EventKind
from sublet.protocol.ids import new_session_id
from sublet.protocol.text import clean_line
from sublet.supervisor.agent import Emit
from sublet.supervisor.sessions.older_map import OlderMap
from sublet.supervisor.sessions.session_parts import (
    MAX_TITLE_CHARS,
    AgentSessionBinding,
    Damage,
    MainSession,
    SessionMessage,
    SessionRoutingState,
    Status,
)
from sublet.supervisor.sessions.status import check_takes_input, check_way
from sublet.supervisor.sessions.store import Messages, SessionStore, unknown_session

MAX_LISTED: Final = 500
MAX_WAITING: Final = 8
"""Requests of one session that wait for their turn; what comes beyond is refused."""
SHARED: Final = "*"
"""In place of an agent's id, where all agents of one provider share a session (``bindingScope`` ``finger``)."""

BindingScope = Literal["finger", "finger+agent"]
T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

log = structlog.get_logger(__name__)


class SessionControl:
    """All sessions of a daemon. Every change is on the disk before it is told.

    Args:
        store: where they are kept.
        emit: journals events.
        now: the time as RFC 3339.
    """

    def __init__(self, store: SessionStore, emit: Emit, now: Callable[[], str]) -> None:
        self._store = store
        self._emit = emit
        self._now = now
        self._records: dict[str, anyio.Lock] = {}
        self._turns: dict[str, anyio.Lock] = {}
        self._waiting: dict[str, int] = {}
        self._owned: dict[str, dict[str, None]] | None = None
        """By owner, the sessions in the order in which they were used; known once somebody has asked."""

    # Life

    async def create(
        self,
        *,
        title: str = "",
        owner: str = "human",
        session_id: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        keys: EventKeys | None = None,
    ) -> MainSession:
        """Begin a session.

        Args:
            title: for people.
            owner: who may go on with it, besides the owner of this daemon.
            session_id: its ``fingerSessionId``; by default a fresh one.
            metadata: kept with it.
            keys: of the request that began it.

        Raises:
            SubletError: ``CONFLICT`` where it exists, ``UNAVAILABLE``.
        """
        now = self._now()
        session = MainSession(
            finger_session_id=new_session_id() if session_id is None else session_id,
            title=clean_line(title, MAX_TITLE_CHARS),
            created_at=now,
            updated_at=now,
            owner=owner,
            metadata=dict(metadata or {}),
        )
        one = session.finger_session_id
        async with self._record(one):
            await self._told(one, EventKind.SESSION_CREATED, keys, {"title": session.title, "owner": owner})
            await self._on_disk(self._store.create, session)
        self._used(session)
        return session

    async def get(self, session_id: str) -> MainSession:
        """Return a session.

        Raises:
            SubletError: ``NOT_FOUND``, ``UNAVAILABLE``.
        """
        async with self._record(session_id):
            return await self._load(session_id)

    async def for_input(self, session_id: str, owner: str) -> MainSession:
        """Return a session that takes new input of ``owner``.

        Raises:
            SubletError: ``SESSION_CLOSED`` where it is paused, completed or damaged; ``NOT_FOUND``, also where it is
                somebody else's.
        """
        session = await self.get(session_id)
        if owner not in ("human", session.owner):
            raise unknown_session(session_id)
        self._used(session)
        check_takes_input(session)
        return session

    async def list(self, limit: int = MAX_LISTED) -> list[MainSession]:
        """Return sessions, those that were used last first. One that can't be read now is left out, and logged."""
        found: list[MainSession] = []
        for session_id in await self._on_disk(self._store.ids):
            if len(found) == min(limit, MAX_LISTED):
                break
            try:
                found.append(await self.get(session_id))
            except SubletError as error:
                log.warning("a session is not listed", session=session_id, reason=str(error))
        return sorted(found, key=lambda session: session.updated_at, reverse=True)

    async def set_status(self, session_id: str, status: Status) -> MainSession:
        """Pause, complete or resume a session; what it is already, it stays.

        Raises:
            SubletError: ``CONFLICT`` where the way there is not open, ``NOT_FOUND``.
        """
        async with self._record(session_id):
            session = await self._load(session_id)
            if session.status == status:
                return session
            check_way(session, status)
            if status == "active":
                await self._told(session_id, EventKind.SESSION_RESUMED, None, {"was": session.status})
            return await self._save(session.model_copy(update={"status": status}))

    async def delete(self, session_id: str) -> MainSession:
        """Forget a session with its messages and bindings.

        Raises:
            SubletError: ``CONFLICT`` while a request of it runs, ``NOT_FOUND``.
        """
        if self.busy(session_id):
            raise SubletError(
                LocalCode.CONFLICT, f"a request of session {session_id} runs", "Wait for its end, or end it first."
            )
        async with self._record(session_id):
            session = await self._load(session_id)
            await self._on_disk(self._store.delete, session_id)
        return session

    async def make_room(self, owner: str, most: int) -> None:
        """Forget what ``owner`` used the longest ago, so that one more session leaves it with at most ``most``.

        What is worked on stays. The sessions of this machine's person are not touched.
        """
        if owner == "human":
            return
        if self._owned is None:
            self._owned = {}
            for session_id in reversed(await self._on_disk(self._store.ids)):
                session = await self.get(session_id)
                self._owned.setdefault(session.owner, {})[session_id] = None
        own = self._owned.setdefault(owner, {})
        for session_id in [one for one in own if not self.busy(one)][: max(0, len(own) - most + 1)]:
            own.pop(session_id, None)
            try:
                await self.delete(session_id)
            except SubletError as error:
                if error.code is not LocalCode.NOT_FOUND:
                    raise

    def busy(self, session_id: str) -> bool:
        """Tell whether a request of the session runs or waits."""
        return self._waiting.get(session_id, 0) > 0

    @asynccontextmanager
    async def turn(self, session_id: str) -> AsyncIterator[None]:
        """Hold the session while one request of it is worked on; others wait, so that no two go on with one thread.

        Raises:
            SubletError: ``UNAVAILABLE`` where too many wait already.
        """
        waiting = self._waiting.get(session_id, 0)
        if waiting > MAX_WAITING:
            raise SubletError(
                LocalCode.UNAVAILABLE, f"{MAX_WAITING} requests of this session wait already", "Wait for their answers."
            )
        self._waiting[session_id] = waiting + 1
        try:
            async with self._turns.setdefault(session_id, anyio.Lock()):
                yield
        finally:
            self._waiting[session_id] -= 1
            if not self._waiting[session_id]:
                del self._waiting[session_id], self._turns[session_id]

    # What is remembered

    async def remember(
        self, session_id: str, routing: SessionRoutingState, metadata: Mapping[str, JsonValue] | None = None
    ) -> MainSession:
        """Write back where the last request went (SuperAgent 4.3, step 5).

        Args:
            session_id: of the session.
            routing: replaces what was remembered.
            metadata: replaces single entries of the session's; one that is None goes.
        """
        async with self._record(session_id):
            session = await self._load(session_id)
            changed = {
                name: value for name, value in {**session.metadata, **(metadata or {})}.items() if value is not None
            }
            return await self._save(session.model_copy(update={"routing": routing, "metadata": changed}))

    async def record(self, session_id: str, message: SessionMessage) -> None:
        """Add a message to the session's stream."""
        async with self._record(session_id):
            await self._on_disk(self._store.append, session_id, message)

    async def messages(self, session_id: str, limit: int) -> Messages:
        """Return the newest messages, the oldest of them first.

        Raises:
            SubletError: ``NOT_FOUND``, ``UNAVAILABLE``.
        """
        async with self._record(session_id):
            return await self._on_disk(self._store.messages, session_id, limit)

    # Bindings

    async def bindings(self, session_id: str) -> tuple[AgentSessionBinding, ...]:
        """Return which sessions of their providers the agents go on with.

        Raises:
            SubletError: ``NOT_FOUND``, ``UNAVAILABLE``.
        """
        async with self._record(session_id):
            return (await self._bindings(session_id))[0]

    async def binding(self, session_id: str, agent_id: str, provider: str, scope: BindingScope) -> BoundTo:
        """Return what an agent goes on with in a session, and what of the bindings was damaged."""
        async with self._record(session_id):
            bindings, damage = await self._bindings(session_id)
        wanted = agent_id if scope == "finger+agent" else SHARED
        for one in bindings:
            if (one.agent_id, one.provider) == (wanted, provider):
                return BoundTo(one, damage)
        return BoundTo(None, damage)

    async def bind(
        self,
        session_id: str,
        agent_id: str,
        provider: str,
        provider_session_id: str,
        *,
        role: str | None = None,
        scope: BindingScope = "finger+agent",
        keys: EventKeys | None = None,
    ) -> AgentSessionBinding:
        """Bind an agent to a session of its provider's, or note that it went on with the one that it has.

        Where another one was bound, that one is lost, and the event says so.

        Raises:
            SubletError: ``NOT_FOUND``, ``UNAVAILABLE``.
        """
        wanted = agent_id if scope == "finger+agent" else SHARED
        made = AgentSessionBinding(
            finger_session_id=session_id,
            agent_id=wanted,
            provider=provider,
            role=role,
            provider_session_id=provider_session_id,
            updated_at=self._now(),
        )
        async with self._record(session_id):
            bindings, _ = await self._bindings(session_id)
            before = next((one for one in bindings if (one.agent_id, one.provider) == (wanted, provider)), None)
            others = [one for one in bindings if one is not before]
            resumed = before is not None and before.provider_session_id == provider_session_id
            data: dict[str, JsonValue] = {"provider": provider, "scope": scope}
            if before is not None and not resumed:
                data["lost"] = before.provider_session_id
            kind = EventKind.SESSION_RESUMED if resumed else EventKind.SESSION_BOUND
            full = (keys or EventKeys()).model_copy(
                update={"agent_id": agent_id, "provider_session_id": provider_session_id}
            )
            await self._told(session_id, kind, full, data)
            await self._on_disk(self._store.save_bindings, session_id, [*others, made])
        return made

    async def take_over(self, older: OlderMap) -> int:
        """Take over the bindings of an older map that are not there yet, and return how many."""
        taken = 0
        for binding in older.bindings:
            if not await self._on_disk(self._store.exists, binding.finger_session_id):
                await self.create(session_id=binding.finger_session_id, title="from the older session map")
            bound = await self.binding(binding.finger_session_id, binding.agent_id, binding.provider, "finger+agent")
            if bound.binding is None:
                await self.bind(
                    binding.finger_session_id,
                    binding.agent_id,
                    binding.provider,
                    binding.provider_session_id,
                    role=binding.role,
                )
                taken += 1
        return taken

    # Below

    def _used(self, session: MainSession) -> None:
        if self._owned is not None:
            own = self._owned.setdefault(session.owner, {})
            own.pop(session.finger_session_id, None)
            own[session.finger_session_id] = None

    async def _bindings(self, session_id: str) -> tuple[tuple[AgentSessionBinding, ...], tuple[Damage, ...]]:
        found = await self._on_disk(self._store.bindings, session_id)
        await self._damaged(found.damage)
        return found.bindings, found.damage

    async def _load(self, session_id: str) -> MainSession:
        read = await self._on_disk(self._store.load, session_id)
        await self._damaged(read.damage)
        return read.session

    async def _save(self, session: MainSession) -> MainSession:
        changed = session.model_copy(update={"updated_at": self._now()})
        await self._on_disk(self._store.save, changed)
        return changed

    async def _damaged(self, damage: tuple[Damage, ...]) -> None:
        for one in damage:
            log.error("a file of a session can't be read and is put aside", **one.model_dump())
            await self._told(one.finger_session_id, EventKind.SESSION_DAMAGED, None, one.model_dump())

    async def _told(
        self, session_id: str, kind: EventKind, keys: EventKeys | None, data: Mapping[str, JsonValue]
    ) -> int:
        full = (keys or EventKeys()).model_copy(update={"finger_session_id": session_id})
        return await self._emit(kind, full, data)

    @asynccontextmanager
    async def _record(self, session_id: str) -> AsyncIterator[None]:
        lock = self._records.setdefault(session_id, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._records.pop(session_id, None)

    @staticmethod
    async def _on_disk(work: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
        with anyio.CancelScope(shield=True):
            return await asyncio.to_thread(work, *arguments)
        raise AssertionError  # a shield swallows nothing


class BoundTo:
    """What an agent is bound to, if anything, and what of the bindings was damaged."""

    __slots__ = ("binding", "damage")

    def __init__(self, binding: AgentSessionBinding | None, damage: tuple[Damage, ...]) -> None:
        self.binding = binding
        self.damage = damage
