"""A question to a plain A2A client: its task waits for input, and the answer on that task goes on (DESIGN 4.9, 7)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from support.chat_process import Step, chat_stub
from support.daemons import Daemon

pytestmark = pytest.mark.timeout(120)


def shell(name: str) -> dict[str, Any]:
    script = f'echo "{name} was asked:"; cat'
    return {"id": name, "role": "executor", "provider": {"type": "command", "argv": ["sh", "-c", script]}}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    one = Daemon(tmp_path_factory.mktemp("q") / "a")
    config = one.home / "config"
    config.mkdir(mode=0o700, parents=True)
    (config / "config.json").write_text(json.dumps({"supervisor": {"default_route": "ask_human"}}))
    (config / "agent.json").write_text(json.dumps({"agents": [shell("coder"), shell("writer")]}))
    try:
        yield one.up()
    finally:
        one.down()


class Client:
    """A client of the protocol's version 1.0, by hand."""

    def __init__(self, daemon: Daemon, name: str) -> None:
        self._url = f"{daemon.info['a2a_url']}/"
        token = daemon.json("token", "create", name)["token"]
        self._headers = {"Authorization": f"Bearer {token}", "A2A-Version": "1.0"}

    def send(self, text: str, task: str | None = None) -> dict[str, Any]:
        message: dict[str, Any] = {"messageId": uuid.uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}]}
        if task is not None:
            message["taskId"] = task
        return self.call("SendMessage", {"message": message})

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = httpx.post(self._url, json=body, headers=self._headers, timeout=60, trust_env=False).json()
        assert isinstance(answer, dict)
        return answer


def test_the_answer_on_the_task_goes_on_with_what_was_asked(daemon: Daemon) -> None:
    client, other = Client(daemon, "one"), Client(daemon, "two")
    asked = client.send("Do it well.")["result"]["task"]
    assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED", asked
    question = asked["status"]["message"]["parts"][0]["text"]
    assert "coder" in question
    assert "writer" in question
    assert client.call("GetTask", {"id": asked["id"]})["result"]["status"] == asked["status"]
    # Nobody else answers it.
    assert "error" in other.send("writer", task=asked["id"])
    done = client.send("writer", task=asked["id"])["result"]["task"]
    assert (done["id"], done["status"]["state"]) == (asked["id"], "TASK_STATE_COMPLETED"), done
    said = done["artifacts"][0]["parts"][0]["text"]
    assert "writer was asked:" in said
    assert "Do it well." in said
    # What has ended takes no further answer.
    assert "error" in client.send("coder", task=asked["id"])


def test_a_task_that_waits_is_cancelled_like_any_other(daemon: Daemon) -> None:
    client = Client(daemon, "three")
    asked = client.send("Do it again.")["result"]["task"]
    assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    gone = client.call("CancelTask", {"id": asked["id"]})["result"]
    assert gone["status"]["state"] == "TASK_STATE_CANCELED"
    assert "error" in client.send("writer", task=asked["id"])


def test_an_agent_asks_and_the_answer_goes_to_it_in_its_own_session_over_a_kill(tmp_path: Path) -> None:
    asks = ["ask_human", {"question": "Which colour?", "options": ["red", "blue"]}]
    script: list[Step] = [{"calls": [asks]}, {"say": "I have to know."}, {"say": "Painted."}]
    with chat_stub(tmp_path / "c", script) as stub:
        daemon = Daemon(tmp_path / "a")
        agent = stub.agent(tools={"whitelist": ["file.*", "sublet.ask_human"]})
        try:
            daemon.up(agent=agent)
            client = Client(daemon, "one")
            asked = client.send("Paint it.")["result"]["task"]
            assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED", asked
            assert asked["status"]["message"]["parts"][0]["text"] == "Which colour?"
            address = urlsplit(str(daemon.info["a2a_url"])).netloc
            daemon.kill()
            daemon.up(agent=agent, a2a=address)
            done = client.send("2", task=asked["id"])["result"]["task"]
            assert done["status"]["state"] == "TASK_STATE_COMPLETED", done
            assert done["artifacts"][0]["parts"][0]["text"].strip() == "Painted."
            said = [one["content"] for one in stub.requests()[-1]["body"]["messages"] if one["role"] == "user"]
            assert said == ["Paint it.", "You asked: Which colour?\n\nThe answer: blue"]
            kinds = [json.loads(line)["kind"] for line in daemon.run("events", "--json").stdout.splitlines()]
            assert "ask_human" in kinds
        finally:
            daemon.down()


def test_an_agent_whose_rules_say_nothing_of_it_can_ask_nobody(tmp_path: Path) -> None:
    with chat_stub(tmp_path / "c", [{"say": "done"}]) as stub:
        daemon = Daemon(tmp_path / "a")
        try:
            daemon.up(agent=stub.agent())
            daemon.json("ask", "Paint it.")
            offered = [tool["function"]["name"] for tool in stub.requests()[0]["body"]["tools"]]
            assert "ask_human" not in offered
        finally:
            daemon.down()
