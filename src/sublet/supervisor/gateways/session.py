"""One gateway while it is connected: what waits for its answers, and what it brings, whatever carries the lines."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Final

import anyio
import structlog
from anyio.abc import TaskGroup

from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.gateway import (
    AnyGatewayMessage,
    DeliveryMode,
    GatewayAck,
    GatewayEvent,
    GatewayInput,
    GatewayPing,
    GatewayPong,
    GatewayRequest,
    GatewayResult,
    MalformedGatewayMessage,
    decode_gateway,
    encode_gateway,
)
from sublet.protocol.text import clean, clean_line
from sublet.supervisor.gateways.module_file import GatewayModule
from sublet.tasks import start_alone

MAX_WAITING: Final = 64
"""Requests to one gateway, and inputs of it, that may be under way at once."""
MAX_QUEUED: Final = 256
MAX_MALFORMED: Final = 32
"""Lines that are no messages; a gateway that sends more is ended."""

LINES_PER_SECOND: Final = 200.0
MAX_LINES_AT_ONCE: Final = 400
"""What a gateway may say before it is read more slowly, so that none keeps the daemon from all else."""

log = structlog.get_logger(__name__)

HandleInput = Callable[[GatewayModule, GatewayInput], Awaitable[str]]
"""Has the supervisor see to an input, and returns its answer."""
TellEvent = Callable[[GatewayModule, GatewayEvent], Coroutine[None, None, None]]


@dataclass(slots=True)
class _Waiting:
    acked: anyio.Event = field(default_factory=anyio.Event)
    done: anyio.Event = field(default_factory=anyio.Event)
    ack: GatewayAck | None = None
    result: GatewayResult | None = None
    lost: str = ""


@dataclass(slots=True)
class _Pong:
    came: anyio.Event = field(default_factory=anyio.Event)
    answer: GatewayPong | None = None


class GatewaySession:
    """One connection. Made when a gateway is there; ``lose`` ends everything that waits for it.

    Args:
        module: the gateway.
        group: what it brings is worked on in this group.
        handle: sees to its inputs.
        tell: is told its events.
    """

    def __init__(self, module: GatewayModule, group: TaskGroup, handle: HandleInput, tell: TellEvent) -> None:
        self.module = module
        self._group = group
        self._handle = handle
        self._tell = tell
        self._ids = itertools.count(1)
        self._waiting: dict[str, _Waiting] = {}
        self._pings: dict[str, _Pong] = {}
        self._inputs = 0
        self._malformed = 0
        self._pace = _Pace()
        self._lost = ""
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_QUEUED)

    async def send(self, message: JsonValue, mode: DeliveryMode | None = None) -> JsonValue:
        """Have the gateway deliver ``message``; return what came of it where it is ``sync``, None where it is not.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` for a way of delivery that it does not have; ``UNAVAILABLE`` where it is
                gone, has too much to do, or answers too late; ``DECLINED``, ``TASK_FAILED`` as it says.
        """
        module = self.module
        chosen = mode or module.mode.default
        if module.direction == "input":
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"gateway {module.id} takes nothing: its direction is input")
        if chosen not in module.mode.supported:
            known = " and ".join(module.mode.supported)
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"gateway {module.id} knows {known} only, not {chosen}")
        if self._lost:
            raise self._gone(self._lost)
        if len(self._waiting) >= MAX_WAITING:
            raise self._gone(f"{MAX_WAITING} requests wait for it")
        request_id, waiting = f"gw{next(self._ids)}", _Waiting()
        self._waiting[request_id] = waiting
        try:
            self._put(GatewayRequest(request_id=request_id, delivery_mode=chosen, message=message))
            await self._within(waiting.acked, module.ack_timeout_ms, "did not take it")
            if waiting.ack is None:
                raise self._gone(waiting.lost)
            if not waiting.ack.accepted:
                why = clean_line(waiting.ack.reason, 300)
                raise SubletError(ErrorCode.DECLINED, f"gateway {module.id} refused it: {why}", from_peer=True)
            if chosen == "async":
                return None
            await self._within(waiting.done, module.result_timeout_ms, "gave no result")
            if waiting.result is None:
                raise self._gone(waiting.lost)
            if not waiting.result.success:
                why = clean(waiting.result.error, 2_000)
                raise SubletError(ErrorCode.TASK_FAILED, f"gateway {module.id} failed: {why}", from_peer=True)
            return waiting.result.output
        finally:
            del self._waiting[request_id]

    @property
    def lost(self) -> str:
        """Why it is gone; empty while it is there."""
        return self._lost

    async def check(self, milliseconds: int) -> str:
        """Ask whether the gateway is well, and return why it is not; empty where it is."""
        request_id, pong = f"ping{next(self._ids)}", _Pong()
        self._pings[request_id] = pong
        try:
            self._put(GatewayPing(request_id=request_id))
            with anyio.move_on_after(milliseconds / 1000):
                await pong.came.wait()
            if pong.answer is None:
                return f"it did not answer within {milliseconds} ms"
            return "" if pong.answer.ok else clean_line(pong.answer.detail, 300) or "it says that it is not well"
        except SubletError as error:
            return error.message
        finally:
            del self._pings[request_id]

    def tell(self, name: str, payload: JsonValue) -> None:
        """Send an event that nobody waits for; dropped where the gateway does not keep up."""
        try:
            self._put(GatewayEvent(name=name, payload=payload))
        except SubletError:
            log.warning("an event for a gateway was left out", gateway=self.module.id, name=name)

    async def paced(self) -> None:
        """Return when the next line may be taken: to be waited for before each, so that a flood waits where it is."""
        await self._pace.wait()

    def receive(self, line: bytes) -> None:
        """Take a line that came.

        Raises:
            MalformedGatewayMessage: too many of them were no messages.
        """
        try:
            message = decode_gateway(line)
        except MalformedGatewayMessage as error:
            self._malformed += 1
            log.warning("a gateway said what is no message", gateway=self.module.id, reason=str(error))
            if self._malformed > MAX_MALFORMED:
                raise
            return
        self._take(message)

    def _take(self, message: AnyGatewayMessage) -> None:
        match message:
            case GatewayAck():
                if waiting := self._waiting.get(message.request_id):
                    waiting.ack = waiting.ack or message
                    waiting.acked.set()
            case GatewayResult():
                if waiting := self._waiting.get(message.request_id):
                    # A result says as well that the request was taken.
                    waiting.ack = waiting.ack or GatewayAck(request_id=message.request_id, accepted=True)
                    waiting.result = waiting.result or message
                    waiting.acked.set()
                    waiting.done.set()
            case GatewayInput():
                self._input(message)
            case GatewayEvent():
                start_alone(self._group, "an event of a gateway", self._tell, self.module, message)
            case GatewayPong():
                if pong := self._pings.get(message.request_id):
                    pong.answer = pong.answer or message
                    pong.came.set()
            case GatewayPing():
                with contextlib.suppress(SubletError):
                    self._put(GatewayPong(request_id=message.request_id))
            case GatewayRequest():
                self._answer(message.request_id, accepted=False, reason="the daemon takes inputs, no requests")

    def _input(self, message: GatewayInput) -> None:
        if self.module.direction == "output":
            self._answer(message.request_id, accepted=False, reason="this gateway's direction is output")
        elif self._inputs >= MAX_WAITING:
            self._answer(message.request_id, accepted=False, reason="too many inputs are under way; try again")
        else:
            self._inputs += 1
            self._answer(message.request_id, accepted=True)
            start_alone(self._group, "an input of a gateway", self._worked_on, message)

    async def _worked_on(self, message: GatewayInput) -> None:
        try:
            output = await self._handle(self.module, message)
            result = GatewayResult(request_id=message.request_id, success=True, output=_sayable(output))
        except SubletError as error:
            result = GatewayResult(request_id=message.request_id, success=False, error=clean(str(error), 5_000))
        except Exception:
            log.exception("an input of a gateway broke", gateway=self.module.id)
            result = GatewayResult(request_id=message.request_id, success=False, error="an internal error occurred")
        finally:
            self._inputs -= 1
        if message.blocking and not self._lost:
            try:
                self._put(result)
            except SubletError:
                log.warning("a result for a gateway was left out", gateway=self.module.id)

    async def next_line(self) -> bytes | None:
        """Return what is to be sent next; None once the gateway is gone."""
        line = await self._queue.get()
        if line is None:
            self._queue.put_nowait(None)
        return line

    def lose(self, reason: str) -> None:
        """Reject everything that waits: the gateway is gone."""
        if self._lost:
            return
        self._lost = reason or "it is gone"
        if self._queue.full():
            self._queue.get_nowait()
        self._queue.put_nowait(None)
        for waiting in self._waiting.values():
            waiting.lost = self._lost
            waiting.acked.set()
            waiting.done.set()

    def _answer(self, request_id: str, *, accepted: bool, reason: str = "") -> None:
        try:
            self._put(GatewayAck(request_id=request_id, accepted=accepted, reason=reason))
        except SubletError:
            log.warning("an answer for a gateway was left out", gateway=self.module.id)

    def _put(self, message: AnyGatewayMessage) -> None:
        try:
            if self._lost:
                raise self._gone(self._lost)
            self._queue.put_nowait(encode_gateway(message))
        except asyncio.QueueFull:
            raise self._gone("it does not read what it is sent") from None
        except MalformedGatewayMessage as error:
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"that can't be sent: {error}") from None

    async def _within(self, event: anyio.Event, milliseconds: int, what: str) -> None:
        with anyio.move_on_after(milliseconds / 1000):
            await event.wait()
            return
        raise self._gone(f"it {what} within {milliseconds} ms")

    def _gone(self, why: str) -> SubletError:
        return SubletError(
            LocalCode.UNAVAILABLE, f"gateway {self.module.id} can't be used: {why}", "See: sublet gateway list"
        )


class _Pace:
    """A rate that may be exceeded for a moment."""

    def __init__(self) -> None:
        self._left = float(MAX_LINES_AT_ONCE)
        self._at = anyio.current_time()

    async def wait(self) -> None:
        now = anyio.current_time()
        self._left = min(MAX_LINES_AT_ONCE, self._left + (now - self._at) * LINES_PER_SECOND) - 1
        self._at = now
        if self._left < 0:
            await anyio.sleep(-self._left / LINES_PER_SECOND)


def _sayable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
