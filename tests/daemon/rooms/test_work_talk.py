"""An agent at work talks in its lender's room alone, and takes as an answer what the lending side says alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from sublet.daemon.config.config_file import MessagingConfig
from sublet.daemon.ports.talking import TalkingWork
from sublet.daemon.rooms import work_talk
from sublet.daemon.rooms.bus_port import BusPort
from sublet.daemon.rooms.lent_rooms import RESULT
from sublet.daemon.rooms.messaging import Messaging
from sublet.daemon.rooms.work_talk import NOT_YET, WorkTalk
from sublet.daemon.rooms.work_tools import WorkTools
from sublet.messaging.service import MessagingService
from sublet.protocol.assignment.prompts import Prompts
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.messages import FollowUp
from sublet.supervisor.job import Deadline
from sublet.supervisor.tool_gate import ToolCall
from sublet.tasks import Service, Services
from support import jobs
from support.pairing import side
from support.rooms import ANY_BUS

pytestmark = pytest.mark.anyio


class Said:
    """``FollowUps`` of a lender that is not there."""

    def __init__(self) -> None:
        self.prompts = Prompts()
        self._arrived = asyncio.Event()

    def add(self, follow_up: FollowUp) -> None:
        self.prompts = self.prompts.take(follow_up)
        self._arrived.set()

    async def answer(self) -> FollowUp:
        while True:
            self.prompts, answer = self.prompts.answer()
            if answer is not None:
                return answer
            self._arrived.clear()
            await self._arrived.wait()


@dataclass
class World:
    """One daemon that is lender and executor at once, with two agents."""

    service: MessagingService
    talk: WorkTalk
    node: str
    told: list[str | None] = field(default_factory=list)

    def entity(self, name: str) -> str:
        return f"@{name}:{self.node}"

    async def room(self, creator: str = "daemon", *members: str) -> str:
        invite = [self.entity(name) for name in ("helper", "human", *members)]
        made = await self.service.call(self.entity(creator), "room.create", name="TalkingWork", invite=invite)
        return str(made["room_id"])

    def work(self, room_id: str | None, delegator: str | None = None) -> TalkingWork:
        work = TalkingWork(
            "dlg_1",
            "helper",
            delegator or self.node,
            room_id,
            Said(),
            lambda question, _: self.told.append(question),
            Deadline(anyio.current_time() + 60),
        )
        self.talk.begins(work)
        return work

    async def say(self, name: str, room: str, body: str) -> None:
        await self.service.call(self.entity(name), "message.send", room_id=room, body=body)

    async def said(self, room: str) -> list[tuple[str, str]]:
        page = await self.service.call(self.entity("human"), "timeline.list", room_id=room, peek=True)
        return [(ref["author"].partition(":")[0], ref["body"]) for ref in page["refs"]]


@asynccontextmanager
async def world(directory: Path) -> AsyncIterator[World]:
    port = BusPort(ANY_BUS, None)
    try:
        async with side(directory, 1) as half, anyio.create_task_group() as group:
            agents = ["helper", "other"]
            messaging = Messaging(
                half.identity, directory, port, half.peers, half.link, MessagingConfig(), lambda: agents
            )
            Services().start(group, Service("rooms", messaging.serve, messaging.wanted))
            talk = WorkTalk(messaging, half.identity.node_id)
            group.start_soon(talk.serve)
            service = await messaging.use()
            yield World(service, talk, half.identity.node_id)
            group.cancel_scope.cancel()
    finally:
        port.close()


async def until_said(at: World, room: str, body: str) -> None:
    with anyio.fail_after(20):
        while body not in [text for _, text in await at.said(room)]:
            await anyio.sleep(0.01)


async def test_only_the_lending_side_answers_and_the_question_is_put_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as at:
        room = await at.room("daemon", "other")
        lender = at.node
        at.work(room)
        answers: list[str | None] = []

        async def ask(seconds: float) -> None:
            monkeypatch.setattr(work_talk, "ANSWER_SECONDS", seconds)
            answers.append(await at.talk.ask("dlg_1", "Which colour?", ["red", "blue"]))

        await ask(0.5)
        assert answers == [NOT_YET]
        assert at.told == ["Which colour?"]
        await at.say("daemon", room, "The agent is at work.")
        async with anyio.create_task_group() as group:
            group.start_soon(ask, 40)
            await at.say("human", room, "red")
        assert answers[1] == f"The answer of @human:{lender}:\nred"
        assert at.told == ["Which colour?", None]
        assert [text for name, text in await at.said(room) if name == "@helper"] == ["Which colour?\n- red\n- blue"]
        # Elsewhere than on the lender's node nobody answers, whatever they say.
        at.work(room, delegator="node-aaaaaaaaaaaaaaaa")
        monkeypatch.setattr(work_talk, "ENTER_SECONDS", 0.5)
        await ask(1)
        assert answers[2] == NOT_YET


async def test_a_follow_up_that_comes_while_it_asks_is_the_answer(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        said = at.work(None).follow_ups
        assert isinstance(said, Said)
        answers: list[str | None] = []

        async def ask() -> None:
            answers.append(await at.talk.ask("dlg_1", "Which colour?", []))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            with anyio.fail_after(20):
                while not at.told:
                    await anyio.sleep(0.01)
            said.add(FollowUp(id="key_1", prompt="blue"))
        assert answers == ["The answer:\nblue"]
        assert [(one.follow_up_id, one.state) for one in said.prompts.told] == [("key_1", "done")]
        assert said.prompts.next()[1] is None, "it is no further prompt"
        assert await at.talk.ask("dlg_2", "Which colour?", []) is None


async def test_a_room_that_the_lender_has_not_opened_is_not_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its agent is a member of it: a lender that names it would read, and say, what is another's."""
    monkeypatch.setattr(work_talk, "ENTER_SECONDS", 0.5)
    async with world(tmp_path) as at:
        for room in (await at.room("human"), await at.room("other"), "019a0000-0000-7000-8000-000000000001", None):
            with pytest.raises(SubletError) as refused:
                await at.talk.say(at.work(room), "secret")
            assert refused.value.code is LocalCode.NOT_FOUND
            if room is not None and not room.endswith("001"):
                assert await at.said(room) == []


async def test_tools_and_last_words_are_of_the_job_and_its_agent_alone(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        room = await at.room()
        work = at.work(room)
        tools = WorkTools(at.talk, lambda agent, tool: agent == "helper" or tool == "sublet.watch")
        assert [offer.tool for offer in tools.offers("helper")] == ["sublet.send_message", "sublet.watch"]
        assert [offer.tool for offer in tools.offers("other")] == ["sublet.watch"]

        async def call(tool: str, job_id: str, agent: str, **arguments: Any) -> tuple[str, str | None]:
            job = replace(jobs.job(tmp_path / "job", "Work."), delegation_id=job_id)
            answer = await tools.call(ToolCall(tool, arguments, "1"), job, agent)
            return answer.text, answer.error

        sent = json.loads((await call("sublet.send_message", "dlg_1", "helper", message="begun"))[0])
        await at.say("human", room, "good")
        await at.service.call(
            at.entity("human"), "message.send", room_id=room, body="go on", ext={"reply_to": sent["ref_id"]}
        )
        text, error = await call("sublet.watch", "dlg_1", "helper", wait_seconds=20)
        assert error is None
        page = json.loads(text.partition("\n")[2])
        assert [one["text"] for one in page["messages"]] == ["good", "go on"]
        text, _ = await call("sublet.watch", "dlg_1", "helper", cursor=page["cursor"])
        assert json.loads(text.partition("\n")[2])["messages"] == []
        for wrong in (("dlg_2", "helper"), ("dlg_1", "other")):
            assert (await call("sublet.watch", *wrong))[1] is not None

        at.talk.ends(work, "All done.\x1b[31m")
        assert (await call("sublet.watch", "dlg_1", "helper"))[1] is not None
        await until_said(at, room, "All done.")
        refs = (await at.service.call(at.entity("human"), "timeline.list", room_id=room))["refs"]
        assert refs[-1]["ext.channels"] == [RESULT]
