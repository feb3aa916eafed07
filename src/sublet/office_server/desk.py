"""Answers what members of offices send: by the rules, by policy, and by asking the Computer that is meant.

Each event is answered, whatever is wrong with it. What is refused on the way to a Computer is answered as if that
Computer were not there, unless policy says why.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

import structlog

from sublet import deadlines
from sublet.offices.calls import Call, Calls
from sublet.offices.ports import AskedOfComputer, GuardsOffices, Refused
from sublet.offices.rules import NOT_THERE, Offices, Outcome
from sublet.offices.seats import Effect, FindsSeats, Seat, Tell
from sublet.protocol.canonical import JsonValue
from sublet.protocol.offices.answers import (
    BROKEN,
    FORBIDDEN,
    TIMED_OUT,
    TOO_MANY,
    Answer,
    computer_not_found,
    failed,
    flat_error,
    malformed,
)
from sublet.protocol.offices.names import NOT_FOUND, UPDATES, ClientEvent, Notice, ServerEvent
from sublet.protocol.offices.requests import (
    MalformedRequest,
    Relayed,
    read_cancel,
    read_join,
    read_leave,
    read_list_room,
    read_relayed,
    read_update,
)
from sublet.protocol.offices.wire import Wire, wire_size

MAX_HANDLED: Final = 256
"""Events of one member that are being answered at one time."""
MAX_TOKENS: Final = 8
"""Tokens with which one connection may come."""
MAX_SECRET_CHARS: Final = 2_048
MAX_UPLOADS: Final = 64
"""Of one Agent. A piece of an older one is decided as an upload of its own."""
MAX_UPLOAD_ID_CHARS: Final = 256

log = structlog.get_logger(__name__)


class Carries(Protocol):
    """Sends to connections."""

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Send what the rules say, in order."""

    async def ask(
        self, sid: str, event: str, data: Mapping[str, JsonValue], size: int, answered: Callable[..., None]
    ) -> bool:
        """Send an event that wants an answer; False where it can't be sent."""

    def forget(self, sid: str, answered: Callable[..., None]) -> None:
        """Wait no longer for an answer."""

    def count(self, sid: str, frames: int, size: int = 0) -> None:
        """Count what a connection has caused."""

    def has_room(self, sid: str, size: int) -> bool:
        """Tell whether a connection reads enough to be sent so many bytes more."""


class Desk:
    """Implements ``HearsMembers``.

    Args:
        offices: the rules.
        calls: those under way.
        tokens: which seat each token is good for.
        guard: asks policy before each call.
    """

    def __init__(self, offices: Offices, calls: Calls, tokens: FindsSeats, guard: GuardsOffices) -> None:
        self._offices = offices
        self._calls = calls
        self._tokens = tokens
        self._guard = guard
        self._carrier: Carries | None = None
        self._handled: Counter[str] = Counter()
        self._uploads: dict[str, dict[tuple[str, str], None]] = {}
        """By Agent, its uploads that were allowed: Computer and the id that it has given each."""

    def carried_by(self, carrier: Carries | None) -> None:
        """Use ``carrier`` from now on, as long as it serves."""
        self._carrier = carrier

    def connected(self, sid: str, secret: str) -> bool:
        """``HearsMembers.connected``; several tokens, with spaces between, are for one office each."""
        secrets = secret.split(" ") if len(secret) <= MAX_SECRET_CHARS else []
        seats = [seat for seat in map(self._tokens.find, secrets[:MAX_TOKENS]) if seat is not None]
        if len(seats) != len(secrets) or not self._offices.connected(sid, seats):
            return False
        self._carry_out("", self._offices.crowded(sid))
        return True

    def gone(self, sid: str) -> None:
        """``HearsMembers.gone``."""
        self._carry_out(sid, self._offices.gone(sid))
        self._left(sid)

    def _left(self, sid: str) -> None:
        """End what a connection has under way in the office that it has left."""
        self._calls.gone(sid)
        self._uploads.pop(sid, None)

    def dismiss(self, effects: Sequence[Effect]) -> None:
        """Carry out what a person has decided, and end the calls of whoever it sends away."""
        self._carry_out("", effects)

    async def handle(self, sid: str, event: str, arguments: list[JsonValue]) -> JsonValue | tuple[JsonValue, ...]:
        """``HearsMembers.handle``."""
        if self._handled[sid] >= MAX_HANDLED:
            return flat_error(TOO_MANY, "Too many requests are under way")
        self._handled[sid] += 1
        try:
            return await self._answer(sid, event, arguments)
        except MalformedRequest as error:
            if event in (ServerEvent.JOIN, ServerEvent.LEAVE):
                return False, str(error)
            return malformed(str(error))
        except Exception:
            # The library would answer nothing, and leave whoever asked to its time limit.
            log.exception("an event of an office could not be answered", event_name=event[:64])
            return flat_error(BROKEN, "Internal error")
        finally:
            self._handled[sid] -= 1
            if not self._handled[sid]:
                del self._handled[sid]

    async def _answer(self, sid: str, event: str, arguments: list[JsonValue]) -> JsonValue | tuple[JsonValue, ...]:
        match event:
            case ServerEvent.JOIN:
                before = self._offices.seat_of(sid)
                outcome = self._offices.join(sid, read_join(arguments))
                if before is not None and self._offices.seat_of(sid) != before:
                    self._left(sid)  # what it was asked in the office that it has left
                return self._told(sid, outcome)
            case ServerEvent.LEAVE:
                outcome = self._offices.leave(sid, read_leave(arguments))
                if outcome.ok:
                    self._left(sid)
                return self._told(sid, outcome)
            case ServerEvent.LIST_ROOM:
                asked = read_list_room(arguments)
                sessions = self._offices.list_room(sid, asked)
                if sessions is None:
                    return flat_error(NOT_FOUND, "Office not found")
                return {"sessions": sessions, "req_id": asked.req_id}
            case ServerEvent.CANCEL:
                return self._done(sid, self._offices.cancel(sid, read_cancel(arguments)))
            case _ if event in UPDATES:
                update = ServerEvent(event)
                return self._done(sid, self._offices.update(sid, update, read_update(arguments)))
            case _ if event in tuple(ClientEvent):
                return await self._relay(sid, read_relayed(ClientEvent(event), arguments))
            case _:
                return flat_error(NOT_FOUND, "Unknown event")

    def _told(self, sid: str, outcome: Outcome) -> tuple[JsonValue, ...]:
        self._carry_out(sid, outcome.effects)
        return (True, None) if outcome.ok else (False, outcome.why)

    def _done(self, sid: str, outcome: Outcome) -> JsonValue:
        self._carry_out(sid, outcome.effects)
        return None if outcome.ok else flat_error(NOT_FOUND, NOT_THERE)

    def _carry_out(self, sid: str, effects: Sequence[Effect]) -> None:
        """Send, count it with whoever caused it, and end the calls of connections that are cut."""
        if self._carrier is None:
            return
        self._carrier.carry_out(effects)
        for effect in effects:
            if isinstance(effect, Tell):
                self._carrier.count(sid, len(effect.sids))
            else:
                self._left(effect.sid)

    async def _relay(self, sid: str, asked: Relayed) -> Answer:
        """Ask a Computer, if the Agent may, and return what it answers."""
        seat, computer = self._offices.seat_of(sid), self._offices.computer(sid, asked.agent, asked.computer)
        if seat is None or computer is None or self._carrier is None:
            return computer_not_found(asked.computer)
        answered: asyncio.Future[tuple[JsonValue, ...]] = asyncio.get_running_loop().create_future()

        def answer(*said: JsonValue) -> None:
            if not answered.done():
                answered.set_result(said)

        weight = asked.data.weight if isinstance(asked.data, Wire) else wire_size(asked.data)
        call = Call(sid, computer, asked.req_id, asked.tool or asked.event, weight, answered.cancel)
        if (why := self._calls.begin(call)) is not None:
            return failed(asked.event, TOO_MANY, "busy", f"{asked.computer} was not asked: {why}")
        try:
            return await self._ask(seat, call, asked, answered, answer)
        except Refused as refusal:
            if refusal.hidden:
                return computer_not_found(asked.computer)
            return failed(asked.event, FORBIDDEN, "forbidden", str(refusal))
        finally:
            self._calls.end(call)

    async def _ask(
        self,
        seat: Seat,
        call: Call,
        asked: Relayed,
        answered: asyncio.Future[tuple[JsonValue, ...]],
        answer: Callable[..., None],
    ) -> Answer:
        goes_on = asked.event is ClientEvent.PUT_BLOB and _upload(call, asked.data) in self._uploads.get(call.agent, {})
        about = AskedOfComputer(seat, asked.computer, asked.event, asked.tool, asked.arguments, goes_on)
        allowed = await self._guard.begin(about)
        error: str | None = "it was cut off"
        try:
            # Policy may have taken its time: the Agent or the Computer may have left meanwhile.
            same = self._offices.seat_of(call.agent) == seat
            carrier = self._carrier
            if not same or answered.cancelled() or carrier is None:
                return computer_not_found(asked.computer)
            if not await carrier.ask(call.computer, asked.event, asked.data, wire_size(asked.data), answer):
                return computer_not_found(asked.computer)
            try:
                async with deadlines.timeout(asked.seconds):
                    said = await answered
            except TimeoutError:
                error = f"no answer came within {asked.seconds:g} s"
                self._call_off(call, asked)
                return failed(asked.event, TIMED_OUT, "timeout", f"{asked.computer}: {error}")
            except asyncio.CancelledError:
                if not answered.cancelled():
                    raise
                error = "the Computer or the Agent has left"
                return computer_not_found(asked.computer)
            finally:
                carrier.forget(call.computer, answer)
            error, result = _result(asked, said)
            if asked.event is ClientEvent.PUT_BLOB and error is None and self._offices.seat_of(call.agent) == seat:
                self._note_upload(call, asked, result)
            if not carrier.has_room(call.agent, wire_size(result)):
                error = "the Agent does not read"
            return result
        finally:
            await allowed.ended(error)

    def _note_upload(self, call: Call, asked: Relayed, result: Answer) -> None:
        """Remember an upload that goes on, by the id that its Computer gives: an Agent could make one up."""
        held, upload = self._uploads.setdefault(call.agent, {}), _upload(call, result)
        held.pop(upload, None)
        if asked.data.get("eof") is not True and 0 < len(upload[1]) <= MAX_UPLOAD_ID_CHARS:
            held[upload] = None
        if len(held) > MAX_UPLOADS:
            del held[next(iter(held))]
        if not held:
            del self._uploads[call.agent]

    def _call_off(self, call: Call, asked: Relayed) -> None:
        """Tell a Computer that nobody waits any more, which clients do not do by themselves."""
        if asked.event is ClientEvent.TOOL_CALL and self._carrier is not None:
            data: JsonValue = {"agent": asked.agent, "req_id": asked.req_id}
            self._carrier.carry_out([Tell((call.computer,), Notice.CANCEL, data)])


def _upload(call: Call, data: Mapping[str, JsonValue]) -> tuple[str, str]:
    """Return the upload that a request or answer names; one without a name is none."""
    upload_id = data.get("upload_id")
    return call.computer, upload_id if isinstance(upload_id, str) else ""


def _result(asked: Relayed, said: tuple[JsonValue, ...]) -> tuple[str | None, Answer]:
    """Return what a Computer has answered, and why it counts as a failure, if it does."""
    if len(said) != 1 or not isinstance(said[0], dict):
        why = "the answer is too large, or is not one object"
        return why, failed(asked.event, BROKEN, "io_error", f"{asked.computer}: {why}")
    answer = said[0]
    if answer.get("isError") is True:
        return "the tool has failed", answer
    code = answer.get("code")
    return (f"error {code}" if isinstance(code, int) and "content" not in answer else None), answer
