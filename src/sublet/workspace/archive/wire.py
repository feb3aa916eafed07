"""Frames and requests of the archive transport, without any I/O: bytes in, bytes out (DESIGN 4.6).

Both sides speak in frames: a type, a length, a payload. ``GET`` is answered by ``DATA`` and ``END``: a tar stream of
the view. ``PUT`` brings changes back: ``PLAN`` frames name all of them first, so that they are refused before any of
them is on the disk; after ``GO`` follow ``DATA`` and ``END``, and ``REPORT`` says what became of them. ``FAIL`` ends
either.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sublet.workspace.archive.tar_format import Kind, MalformedTar, checked_parts

ModelT = TypeVar("ModelT", bound=BaseModel)

SUBSYSTEM: Final = "sublet-archive"
MAX_FRAME: Final = 256 * 1024
"""Payload of one frame."""
MAX_REASON_CHARS: Final = 200
MAX_REFUSED: Final = 200
"""Refused names that a report lists; its count goes on."""

_HEAD: Final = struct.Struct(">BI")
_PLANNED: Final = struct.Struct(">cQH")
_LETTERS: Final[dict[Kind | Literal["deleted"], bytes]] = {
    "file": b"f",
    "directory": b"d",
    "symlink": b"l",
    "hardlink": b"h",
    "deleted": b"-",
}
_BY_LETTER: Final = {letter: kind for kind, letter in _LETTERS.items()}


class Frame(IntEnum):
    """Types of frames."""

    GET = 1
    PUT = 2
    PLAN = 3
    GO = 4
    DATA = 5
    END = 6
    REPORT = 7
    FAIL = 8


_KINDS: Final = frozenset(Frame)


class MalformedFrame(Exception):
    """What arrived is no frame, or none that may come now; the text says why."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One change that is about to be sent: a name, what it becomes, and how many bytes follow for it."""

    parts: tuple[bytes, ...]
    kind: Kind | Literal["deleted"]
    size: int = 0


class Refused(BaseModel):
    """A change that was not made, and why. ``name`` is text in which no byte of the name is lost."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    name: Annotated[str, Field(max_length=4_096)]
    reason: Annotated[str, Field(max_length=MAX_REASON_CHARS)]


class Report(BaseModel):
    """What became of the changes that were sent."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    refused: Annotated[list[Refused], Field(max_length=MAX_REFUSED)] = []
    refused_count: Annotated[int, Field(ge=0)] = 0


class Failure(BaseModel):
    """Why a transfer ended. ``code`` is ``QUOTA``, ``READ_ONLY``, ``BUSY``, ``OVER``, ``MALFORMED`` or ``IO``."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    code: Annotated[str, Field(pattern=r"^[A-Z_]{1,32}$")]
    reason: Annotated[str, Field(max_length=MAX_REASON_CHARS)]


class Frames:
    """Cuts what arrives into frames, one at a time, so that nobody keeps an object for each of many tiny ones."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._start = 0

    @property
    def waiting(self) -> int:
        """How many bytes have arrived and are in no frame that was returned."""
        return len(self._data) - self._start

    def add(self, data: bytes) -> None:
        """Take what has arrived."""
        if self._start:
            del self._data[: self._start]
            self._start = 0
        self._data += data

    def next(self) -> tuple[Frame, bytes] | None:
        """Return the next complete frame, or None where more has to arrive.

        Raises:
            MalformedFrame: an unknown type, or a payload of more than ``MAX_FRAME`` bytes.
        """
        start = self._start + _HEAD.size
        if len(self._data) < start:
            return None
        kind, size = _HEAD.unpack_from(self._data, self._start)
        if size > MAX_FRAME or kind not in _KINDS:
            raise MalformedFrame("an unknown frame, or one that is too large")
        if len(self._data) < start + size:
            return None
        self._start = start + size
        return Frame(kind), bytes(memoryview(self._data)[start : self._start])

    def receive(self, data: bytes) -> Iterator[tuple[Frame, bytes]]:
        """Take what has arrived, and yield the frames that are complete.

        Raises:
            MalformedFrame: as ``next``.
        """
        self.add(data)
        while (found := self.next()) is not None:
            yield found

    def clear(self) -> None:
        """Forget what has arrived."""
        self._data, self._start = bytearray(), 0


def frame(kind: Frame, payload: bytes = b"") -> bytes:
    """Return a frame of at most ``MAX_FRAME`` bytes: its kind, the payload's length in four bytes, and the payload."""
    return _HEAD.pack(kind, len(payload)) + payload


def data_frames(data: bytes) -> Iterator[bytes]:
    """Yield ``data`` in ``DATA`` frames."""
    view = memoryview(data)
    for start in range(0, len(data), MAX_FRAME):
        yield frame(Frame.DATA, bytes(view[start : start + MAX_FRAME]))


def plan_frames(plan: Iterable[Planned]) -> Iterator[bytes]:
    """Yield the ``PLAN`` frames of ``plan``."""
    pieces: list[bytes] = []
    size = 0
    for planned in plan:
        name = b"/".join(planned.parts)
        piece = _PLANNED.pack(_LETTERS[planned.kind], planned.size, len(name)) + name
        if size + len(piece) > MAX_FRAME:
            yield frame(Frame.PLAN, b"".join(pieces))
            pieces, size = [], 0
        pieces.append(piece)
        size += len(piece)
    if pieces:
        yield frame(Frame.PLAN, b"".join(pieces))


def read_plan(payload: bytes) -> Iterator[Planned]:
    """Yield what a ``PLAN`` frame holds.

    Raises:
        MalformedFrame: it is cut or malformed, or a name in it does not only lead down.
    """
    start = 0
    while start < len(payload):
        if len(payload) - start < _PLANNED.size:
            raise MalformedFrame("a plan is cut")
        letter, size, length = _PLANNED.unpack_from(payload, start)
        start += _PLANNED.size
        name = payload[start : start + length]
        start += length
        kind = _BY_LETTER.get(letter)
        if kind is None or start > len(payload) or (size and kind != "file"):
            raise MalformedFrame("a plan can't be read")
        try:
            yield Planned(checked_parts(name), kind, size)
        except MalformedTar as exc:
            raise MalformedFrame(str(exc)) from None


def pack_report(report: Report) -> bytes:
    """Return the ``REPORT`` frame, with as many of the refused names as fit."""
    payload = report.model_dump_json().encode()
    while len(payload) > MAX_FRAME:
        report = report.model_copy(update={"refused": report.refused[: len(report.refused) // 2]})
        payload = report.model_dump_json().encode()
    return frame(Frame.REPORT, payload)


def read_report(payload: bytes) -> Report:
    """Return what a ``REPORT`` frame says.

    Raises:
        MalformedFrame: it can't be read.
    """
    return _validated(Report, payload, "a report")


def pack_failure(code: str, reason: str) -> bytes:
    """Return the ``FAIL`` frame."""
    return frame(Frame.FAIL, Failure(code=code, reason=reason[:MAX_REASON_CHARS]).model_dump_json().encode())


def read_failure(payload: bytes) -> Failure:
    """Return what a ``FAIL`` frame says.

    Raises:
        MalformedFrame: it can't be read.
    """
    return _validated(Failure, payload, "a failure")


def _validated(model: type[ModelT], payload: bytes, what: str) -> ModelT:
    try:
        return model.model_validate_json(payload)
    except ValidationError:
        raise MalformedFrame(f"{what} can't be read") from None
