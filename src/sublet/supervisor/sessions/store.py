"""Sessions on the disk: ``<fingerSessionId>/{session.json,messages.jsonl,agent-sessions.json}`` (SuperAgent 4.2).

Records are replaced whole and durably. One that can't be read is put aside under another name and reported; it is never
taken for an empty one. Everything here blocks: call it in a thread, and one call per session at a time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from sublet.disk.durable import sync_directory, write_durably
from sublet.disk.plain_file import read_plain
from sublet.disk.removal import remove_tree
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ids import SESSION_ID
from sublet.protocol.text import clean, clean_line
from sublet.supervisor.sessions.session_parts import (
    MAX_TEXT_CHARS,
    AgentSessionBinding,
    AgentSessions,
    Damage,
    MainSession,
    SessionMessage,
    SessionPart,
)

SESSION_FILE: Final = "session.json"
MESSAGES_FILE: Final = "messages.jsonl"
OLDER_MESSAGES_FILE: Final = "messages.1.jsonl"
BINDINGS_FILE: Final = "agent-sessions.json"
MAX_RECORD_BYTES: Final = 1 << 20
MAX_MESSAGES_BYTES: Final = 4 << 20
"""When ``messages.jsonl`` has grown so far it becomes the older half, and what was the older half before is dropped."""
MAX_SESSIONS: Final = 10_000
_DELETED: Final = ".deleted-"
_NO_FILE: Final = frozenset({errno.EISDIR, errno.EINVAL, errno.ELOOP})
"""What reading says of a directory, a FIFO and a link, none of which is ours."""

PartT = TypeVar("PartT", bound=SessionPart)


@dataclass(frozen=True, slots=True)
class Read:
    """A session as it was read, and what of it could not be."""

    session: MainSession
    damage: tuple[Damage, ...] = ()


@dataclass(frozen=True, slots=True)
class Bindings:
    """The bindings of a session, and what of them could not be read."""

    bindings: tuple[AgentSessionBinding, ...] = ()
    damage: tuple[Damage, ...] = ()


@dataclass(frozen=True, slots=True)
class Messages:
    """The newest messages of a session, the oldest first; ``unreadable`` lines were left out."""

    messages: tuple[SessionMessage, ...] = field(default=())
    unreadable: int = 0


class SessionStore:
    """The directory of all sessions.

    Args:
        root: where they are; made on the first write, private.
        now: the time as RFC 3339.
    """

    def __init__(self, root: Path, now: Callable[[], str]) -> None:
        self._root = root
        self._now = now

    def exists(self, session_id: str) -> bool:
        """Tell whether there is such a session."""
        return self._directory(session_id).is_dir()

    def create(self, session: MainSession) -> None:
        """Add a session.

        Raises:
            SubletError: ``CONFLICT`` where there is one of that id, ``UNAVAILABLE`` where there are too many or the
                disk fails.
        """
        with _told(session.finger_session_id):
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if sum(1 for _ in os.scandir(self._root)) >= MAX_SESSIONS:
                raise SubletError(
                    LocalCode.UNAVAILABLE, f"there are {MAX_SESSIONS} sessions", "Remove some: sublet prune"
                )
            directory = self._directory(session.finger_session_id)
            try:
                directory.mkdir(mode=0o700)
            except FileExistsError:
                raise SubletError(
                    LocalCode.CONFLICT, f"there is a session {session.finger_session_id} already", "Use another id."
                ) from None
            self._write(directory / SESSION_FILE, session)
            sync_directory(self._root)

    def load(self, session_id: str) -> Read:
        """Return a session. Where its record is missing or can't be read, what is known of it is returned as damaged.

        Raises:
            SubletError: ``NOT_FOUND``, or ``UNAVAILABLE`` where the disk fails.
        """
        with self._of(session_id) as directory:
            found, damage = self._read(directory / SESSION_FILE, MainSession)
            if found is not None and found.finger_session_id == session_id:
                return Read(found)
            if damage is None:
                why = "it is missing" if found is None else "it is that of another session"
                damage = self._set_aside(directory / SESSION_FILE, why)
            session = MainSession(
                finger_session_id=session_id,
                title="(its record was damaged)",
                created_at=self._now(),
                updated_at=self._now(),
                status="error",
                metadata={"damage": damage.model_dump(mode="json")},
            )
            self._write(directory / SESSION_FILE, session)
            return Read(session, (damage,))

    def save(self, session: MainSession) -> None:
        """Replace a session's record.

        Raises:
            SubletError: ``NOT_FOUND`` where it was deleted, ``UNAVAILABLE`` where the disk fails.
        """
        with self._of(session.finger_session_id) as directory:
            self._write(directory / SESSION_FILE, session)

    def bindings(self, session_id: str) -> Bindings:
        """Return which sessions of their providers the agents go on with.

        Raises:
            SubletError: ``NOT_FOUND``, or ``UNAVAILABLE`` where the disk fails.
        """
        with self._of(session_id) as directory:
            found, damage = self._read(directory / BINDINGS_FILE, AgentSessions)
            if damage is not None:
                return Bindings(damage=(damage,))
            return Bindings(found.bindings if found is not None else ())

    def save_bindings(self, session_id: str, bindings: Sequence[AgentSessionBinding]) -> None:
        """Replace the bindings of a session.

        Raises:
            SubletError: ``UNAVAILABLE`` where there are too many or the disk fails.
        """
        try:
            made = AgentSessions(bindings=tuple(bindings))
        except ValidationError:
            raise SubletError(
                LocalCode.UNAVAILABLE, "too many agents take part in this session", "Begin another session."
            ) from None
        with _told(session_id):
            self._write(self._directory(session_id) / BINDINGS_FILE, made)

    def append(self, session_id: str, message: SessionMessage) -> None:
        """Add a message; it is on the disk when this returns.

        Raises:
            SubletError: ``UNAVAILABLE`` where the disk fails.
        """
        if len(message.text) > MAX_TEXT_CHARS:
            message = message.model_copy(update={"text": clean(message.text, MAX_TEXT_CHARS)})
        line = message.model_dump_json(by_alias=True, exclude_none=True).encode("utf-8", "replace") + b"\n"
        directory = self._directory(session_id)
        file = directory / MESSAGES_FILE
        with _told(session_id):
            with contextlib.suppress(FileNotFoundError):
                if file.stat().st_size + len(line) > MAX_MESSAGES_BYTES:
                    file.replace(directory / OLDER_MESSAGES_FILE)
                    sync_directory(directory)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(file, flags, 0o600)
            with open(descriptor, "r+b", buffering=0) as opened:
                size = os.fstat(descriptor).st_size
                if size and os.pread(descriptor, 1, size - 1) != b"\n":
                    line = b"\n" + line  # what a crash has cut off stays a line of its own, and is not read
                left = memoryview(line)
                while left:  # a disk that is all but full takes a part, and refuses the rest
                    left = left[opened.write(left) :]
                os.fsync(descriptor)
            if not size:
                sync_directory(directory)

    def messages(self, session_id: str, limit: int) -> Messages:
        """Return the newest ``limit`` messages.

        Raises:
            SubletError: ``NOT_FOUND``, or ``UNAVAILABLE`` where the disk fails.
        """
        with self._of(session_id) as directory:
            lines: list[bytes] = []
            for name in (OLDER_MESSAGES_FILE, MESSAGES_FILE):
                with contextlib.suppress(FileNotFoundError):
                    raw = read_plain(directory / name, MAX_MESSAGES_BYTES, follow=False)
                    lines += [line for line in raw.split(b"\n") if line]
        found: list[SessionMessage] = []
        unreadable = 0
        for line in reversed(lines):
            if len(found) == limit:
                break
            try:
                found.append(SessionMessage.model_validate_json(line))
            except ValidationError:
                unreadable += 1
        return Messages(tuple(reversed(found)), unreadable)

    def ids(self) -> list[str]:
        """Return the ids of all sessions, those that were touched last first."""
        found: list[tuple[float, str]] = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self._root) as entries:
            for entry in entries:
                if SESSION_ID.match(entry.name) and entry.is_dir(follow_symlinks=False):
                    with contextlib.suppress(FileNotFoundError):
                        found.append((entry.stat(follow_symlinks=False).st_mtime, entry.name))
        return [name for _, name in sorted(found, reverse=True)]

    def delete(self, session_id: str) -> None:
        """Remove a session with everything of it; none is no error. A kill halfway leaves nothing that looks whole.

        Raises:
            SubletError: ``UNAVAILABLE`` where the disk fails.
        """
        directory = self._directory(session_id)
        doomed = self._root / f"{_DELETED}{secrets.token_hex(8)}"
        with _told(session_id):
            with contextlib.suppress(FileNotFoundError):
                directory.replace(doomed)
                sync_directory(self._root)
            remove_tree(doomed)

    def sweep(self) -> None:
        """Remove what a kill left of deletions."""
        with contextlib.suppress(FileNotFoundError):
            for left in self._root.glob(f"{_DELETED}*"):
                remove_tree(left)

    def size(self, session_id: str) -> int:
        """Return how many bytes a session takes."""
        total = 0
        with contextlib.suppress(FileNotFoundError), os.scandir(self._directory(session_id)) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    total += entry.stat(follow_symlinks=False).st_size
        return total

    @contextlib.contextmanager
    def _of(self, session_id: str) -> Iterator[Path]:
        """Yield the directory of a session that is there; what the disk refuses meanwhile is told in words.

        Raises:
            SubletError: ``NOT_FOUND`` or ``UNAVAILABLE``.
        """
        directory = self._directory(session_id)
        with _told(session_id):
            if not directory.is_dir():
                raise unknown_session(session_id)
            yield directory

    def _directory(self, session_id: str) -> Path:
        if not SESSION_ID.match(session_id):
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"{clean_line(session_id, 80)!r} is no id of a session",
                "See: sublet sessions list",
            )
        return self._root / session_id

    def _write(self, path: Path, record: SessionPart) -> None:
        write_durably(path, record.model_dump_json(by_alias=True, indent=1).encode() + b"\n")

    def _read(self, path: Path, kind: type[PartT]) -> tuple[PartT | None, Damage | None]:
        try:
            raw = read_plain(path, MAX_RECORD_BYTES, follow=False)
        except FileNotFoundError:
            return None, None
        except OSError as error:
            if error.errno not in _NO_FILE:
                raise
            return None, self._set_aside(path, clean_line(error.strerror or str(error), 200))
        if len(raw) > MAX_RECORD_BYTES:
            return None, self._set_aside(path, f"it is larger than {MAX_RECORD_BYTES} bytes")
        try:
            return kind.model_validate_json(raw), None
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            return None, self._set_aside(path, clean_line(f"{where}: {first['msg']}".lstrip(": "), 200))

    def _set_aside(self, path: Path, why: str) -> Damage:
        aside = path.with_name(f"{path.name}.corrupt-{secrets.token_hex(6)}")
        try:
            path.replace(aside)
            sync_directory(path.parent)
        except FileNotFoundError:
            aside = path
        return Damage(finger_session_id=path.parent.name, file=path.name, set_aside_as=aside.name, why=why)


def unknown_session(session_id: str) -> SubletError:
    """Return the error of a session that is not there."""
    return SubletError(
        LocalCode.NOT_FOUND, f"there is no session {clean_line(session_id, 80)}", "See: sublet sessions list"
    )


@contextlib.contextmanager
def _told(session_id: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SubletError(
            LocalCode.UNAVAILABLE,
            f"session {clean_line(session_id, 80)} can't be read or written: {error.strerror}",
            "Check the disk and the state directory.",
        ) from None
