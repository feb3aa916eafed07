"""Agents at work talk with the side that lends: in the delegation's room, and in no other, as themselves.

A delegator names the room in START. It counts only where that delegator's daemon has opened it, so that nobody has an
agent speak, or read, in somebody else's room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import anyio
import structlog

from sublet.daemon.ports.talking import TalkingWork
from sublet.daemon.rooms.entities import agent_of, daemon_of
from sublet.daemon.rooms.lent_rooms import RESULT
from sublet.daemon.rooms.messaging import Messaging
from sublet.messaging.calls import message_calls, room_calls
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId, RoomId, is_room_id
from sublet.protocol.text import clean, clean_line
from sublet.tasks import start_alone

if TYPE_CHECKING:
    from sublet.messaging.service import MessagingService

ENTER_SECONDS: Final = 10.0
"""How long the room of a lease may take to come: it is opened while the work begins."""
ANSWER_SECONDS: Final = 40.0
"""How long one call waits for an answer; the same question again goes on waiting."""
MAX_LAST_WORDS: Final = 256
MAX_ANSWER_CHARS: Final = 16_000
MAX_SUMMARY_CHARS: Final = 16_000
MAX_LINE_CHARS: Final = 200
NO_WORD: Final = "(The work has ended without a word.)"
"""What stands for a last word that there is none of: the delegator's daemon waits for it before it closes the room."""
NOT_YET: Final = (
    "Nobody has answered yet. Call again with the same question to go on waiting, or go on without the answer."
)

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Question:
    """What an agent has asked; ``ref_id`` once it stands in the room, after ``cursor``."""

    text: str
    cursor: int = 0
    ref_id: str | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class WorkTalk:
    """Implements ``Talking`` and ``LeaseQuestions``; ``serve`` must run for last words to be said.

    Args:
        messaging: runs the rooms.
        node_id: ours.
    """

    def __init__(self, messaging: Messaging, node_id: str) -> None:
        self._messaging = messaging
        self._node_id = node_id
        self._works: dict[str, TalkingWork] = {}
        self._questions: dict[str, _Question] = {}
        self._last_words: asyncio.Queue[tuple[TalkingWork, str]] = asyncio.Queue(MAX_LAST_WORDS)

    def entity(self, agent: str) -> str | None:
        """``Talking.entity``."""
        return agent_of(agent, self._node_id) if self._messaging.running else None

    def rooms(self) -> frozenset[str]:
        """Return the rooms in which agents work or have a last word to say."""
        return frozenset(work.room_id for work in self._works.values() if work.room_id is not None)

    def begins(self, work: TalkingWork) -> None:
        """``Talking.begins``."""
        self._works[work.id] = work
        if work.room_id is not None and is_room_id(work.room_id):
            self._messaging.expect(work.room_id, work.delegator)

    def ends(self, work: TalkingWork, summary: str | None) -> None:
        """``Talking.ends``."""
        self._works.pop(work.id, None)
        self._questions.pop(work.id, None)
        if work.room_id is not None:
            try:
                self._last_words.put_nowait((work, summary or NO_WORD))
            except asyncio.QueueFull:
                log.warning("an agent's last word is not said in its room", delegation_id=work.id)

    async def serve(self) -> None:
        """Say last words until cancelled."""
        async with anyio.create_task_group() as group:
            while True:
                work, summary = await self._last_words.get()
                start_alone(group, "the last word of an agent", self._say_last, work, summary)

    # LeaseQuestions

    async def ask(self, job_id: str, question: str, options: Sequence[str]) -> str | None:
        """``LeaseQuestions.ask``."""
        work = self._works.get(job_id)
        if work is None:
            return None
        text = "\n".join([question, *(f"- {option}" for option in options)])
        asked = self._questions.get(work.id)
        if asked is None or asked.text != text:
            asked = self._questions[work.id] = _Question(text)
            line = clean_line(question, MAX_LINE_CHARS)
            work.asking(line, f"the agent asks: {text}\n")
        answers: list[str] = []
        seconds = max(0.0, min(ANSWER_SECONDS, work.deadline.at - anyio.current_time()))
        async with asked.lock:
            with anyio.move_on_after(seconds):
                async with anyio.create_task_group() as group:

                    async def by_room() -> None:
                        answer = await self._answer_in_room(work, asked)
                        if answer is not None and not answers:
                            answers.append(answer)
                            group.cancel_scope.cancel()

                    group.start_soon(by_room)
                    follow_up = await work.follow_ups.answer()
                    answers.append(f"The answer:\n{follow_up.prompt}")
                    group.cancel_scope.cancel()
        if not answers:
            return NOT_YET
        if self._questions.get(work.id) is asked:
            del self._questions[work.id]
            work.asking(None, "the agent was answered\n")
        return answers[0]

    async def _answer_in_room(self, work: TalkingWork, asked: _Question) -> str | None:
        """Ask in the room, once, and return what the lending side says after that; None where there is no room."""
        try:
            room, me = await self.entered(work), self._entity(work)
            service = await self._messaging.use()
            if asked.ref_id is None:
                asked.cursor = await service.cursor()
                with anyio.CancelScope(shield=True):
                    sent = await service.call(me, message_calls.send, room_id=room, body=asked.text, ext={"asks": True})
                    asked.ref_id = str(sent["ref_id"])
            while True:
                found = await service.watch(me, asked.cursor, ANSWER_SECONDS, room)
                for event in found["events"]:
                    author = str(event.get("author", ""))
                    if event["kind"] == "message.new" and await self._may_answer(service, author, work):
                        ref = await service.call(me, message_calls.get_ref, room_id=room, ref_id=event["ref_id"])
                        if ref.get("body") and _answers(ref, asked) and await service.delivery.steers(me, ref):
                            asked.cursor = event["cursor"]
                            return f"The answer of {author}:\n{clean(ref['body'], MAX_ANSWER_CHARS)}"
                asked.cursor = found["cursor"]
        except SubletError as error:
            log.info("an agent asks without a room", delegation_id=work.id, reason=str(error))
            return None

    async def _may_answer(self, service: MessagingService, author: EntityId, work: TalkingWork) -> bool:
        """Tell whether somebody speaks for the lending side; its daemon only tells what happens."""
        if author in (daemon_of(work.delegator), self._entity(work)):
            return False
        return await service.on_engine(lambda engine: engine.keyring.home(author)) == work.delegator

    # The room

    def work(self, job_id: str) -> TalkingWork | None:
        """Return the work of a job, while it goes on."""
        return self._works.get(job_id)

    async def entered(self, work: TalkingWork) -> RoomId:
        """Return the room of a work once its agent is in it.

        Raises:
            SubletError: ``NOT_FOUND`` where there is none, or it does not come; ``UNAVAILABLE``.
        """
        if work.room_id is not None and agent_of(work.agent, self._node_id) is not None:
            service, me = await self._messaging.use(), self._entity(work)
            cursor = await service.cursor()
            with anyio.move_on_after(ENTER_SECONDS):
                while True:
                    try:
                        found = await service.call(me, room_calls.get, room_id=work.room_id)
                    except SubletError:
                        news = await service.watch(me, cursor, ENTER_SECONDS, work.room_id)
                        cursor = news["cursor"]
                        continue
                    if found["config"].get("created_by") == daemon_of(work.delegator):
                        return work.room_id
                    break
        raise SubletError(
            LocalCode.NOT_FOUND, "there is no conversation with those for whom you work", "Say it in your answer."
        )

    async def say(self, work: TalkingWork, body: str, ext: dict[str, Any] | None = None) -> message_calls.RefSent:
        """Say something in the room of a work as its agent.

        Raises:
            SubletError: as ``entered``; the room refuses.
        """
        room = await self.entered(work)
        service = await self._messaging.use()
        me = self._entity(work)
        return await service.call(me, message_calls.send, room_id=room, body=body, ext=ext)

    async def heard(self, work: TalkingWork, since: int, seconds: float) -> tuple[list[message_calls.Ref], int]:
        """Return what others have said in the room of a work after a cursor, and the cursor after that.

        Raises:
            SubletError: as ``entered``.
        """
        room, me = await self.entered(work), self._entity(work)
        service = await self._messaging.use()
        until = anyio.current_time() + seconds
        while True:
            left = max(0.0, until - anyio.current_time())
            found = await service.watch(me, since, left, room)
            since = found["cursor"]
            told = [one for one in found["events"] if one["kind"] == "message.new" and one["author"] != me]
            if told or anyio.current_time() >= until:
                return [
                    await service.call(me, message_calls.get_ref, room_id=room, ref_id=one["ref_id"]) for one in told
                ], since

    async def _say_last(self, work: TalkingWork, summary: str) -> None:
        try:
            await self.say(work, clean(summary, MAX_SUMMARY_CHARS), ext={"channels": [RESULT]})
        except Exception as error:
            # Of no consequence for the work, which has ended.
            log.info("an agent's last word is not said in its room", delegation_id=work.id, reason=str(error))

    def _entity(self, work: TalkingWork) -> EntityId:
        return f"@{work.agent}:{self._node_id}"


def _answers(ref: Mapping[str, Any], asked: _Question) -> bool:
    """Tell whether a message can answer a question: it replies to that, or to nothing."""
    answered = ref.get("ext.reply_to")
    return answered is None or (isinstance(answered, dict) and answered.get("ref_id") == asked.ref_id)
