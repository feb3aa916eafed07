"""The room of a delegation between two real daemons: both sides talk there while the agent works, and read it later."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sublet.daemon.rooms.lent_rooms import is_closed
from support import acp_agent
from support.daemons import Daemon, pair, wait_for
from support.leases import begin, finish
from support.typed_commands import Typing

pytestmark = pytest.mark.timeout(300)

PYTHON = shutil.which("python3", path="/usr/bin:/bin") or "python3"
HELPER = {
    "id": "helper",
    "role": "executor",
    "provider": {"type": "acp", "argv": [PYTHON, acp_agent.__file__, "tools"]},
    "sandbox": {"readable": [str(Path(acp_agent.__file__).parent)]},
    "tools": {"whitelist": ["sublet.ask_human", "sublet.send_message", "sublet.watch"]},
}
WAIT_SECONDS = 40
QUESTION = {"question": "Which colour?", "options": ["red", "blue"]}


@contextmanager
def lender_and_helper(base: Path, *, rooms: bool = True) -> Iterator[tuple[Typing, Typing]]:
    lender, worker = Daemon(base / "a"), Daemon(base / "b")
    if not rooms:
        (lender.home / "state" / "messaging.db").mkdir(parents=True)
        (lender.home / "state").chmod(0o700)
    try:
        lender.up()
        worker.up(agent=HELPER)
        pair(lender, worker)
        if rooms:
            for daemon in (lender, worker):
                daemon.json("whoami")  # which waits until rooms are there
        yield Typing(lender), Typing(worker)
    finally:
        lender.down()
        worker.down()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Typing, Typing]]:
    with lender_and_helper(tmp_path_factory.mktemp("rooms")) as daemons:
        yield daemons


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


def shown(lender: Typing, delegation: str) -> dict[str, Any]:
    listed = lender.json("ls", "--all")["delegations"]
    found: dict[str, Any] = next(one for one in listed if one["delegation_id"] == delegation)
    return found


def wait_asked(lender: Typing, delegation: str) -> dict[str, Any]:
    """Wait until the agent waits for an answer; return the delegation."""

    def asks() -> bool:
        condition = shown(lender, delegation)["condition"]
        return condition is not None and condition["kind"] == "waiting_for_answer"

    wait_for(asks, WAIT_SECONDS, "the agent's question")
    return shown(lender, delegation)


def said(who: Typing, room: str) -> list[tuple[str, str]]:
    return [(one["author"].partition(":")[0], one["body"]) for one in who.json("read", room)]


def results(lender: Typing, delegation: str) -> list[Any]:
    """Return what came of each call that the agent made."""
    view = finish(lender.daemon, delegation)
    assert str(view.state) == "completed", view
    assert view.result is not None
    told = json.loads(view.result.final_summary)
    assert set(told[0]) >= {"ask_human", "send_message", "watch"}
    return list(told[1:])


def test_both_sides_talk_while_the_agent_works_and_the_room_closes_with_the_lease(
    both: tuple[Typing, Typing], project: Path
) -> None:
    lender, worker = both
    calls = [
        ["send_message", {"message": "I have begun."}],
        ["ask_human", QUESTION],
        ["watch", {"cursor": 0}],
    ]
    hers = lender.json("whoami")["entity_id"]
    delegation = begin(lender.daemon, project, json.dumps(calls))
    asked = wait_asked(lender, delegation)
    assert "Which colour?" in asked["condition"]["detail"]
    room = asked["room_id"]
    assert room in [one["room_id"] for one in lender.json("ls")["delegations"]]
    wait_for(lambda: ("@helper", "Which colour?\n- red\n- blue") in said(lender, room), WAIT_SECONDS, "it there")
    roles = lender.json("room", "show", room)["roles"]
    here, there = (who.json("status")["node_id"] for who in (lender, worker))
    assert roles == {
        f"@daemon:{here}": "owner",
        hers: "admin",
        **{f"@{name}:{there}": "member" for name in ("helper", "human", "daemon")},
    }
    lender.run("send", room, "red, please")
    sent, answer, heard = results(lender, delegation)
    assert sent[0] is False, sent
    assert answer[1] == f"The answer of {hers}:\nred, please"
    conversation = json.loads(heard[1].partition("\n")[2])
    assert "red, please" in [one["text"] for one in conversation["messages"]]
    assert shown(lender, delegation)["condition"] is None

    wait_for(lambda: any("closed" in body for _, body in said(lender, room)), WAIT_SECONDS, "the end in the room")
    wait_for(lambda: is_closed(lender.json("room", "show", room)["config"]), WAIT_SECONDS, "the closed room")
    everything = said(lender, room)
    authors = [author for author, _ in everything]
    assert authors[0] == "@daemon"
    assert ("@helper", "I have begun.") in everything
    assert authors.count("@helper") == 3, "its last word is there too"
    assert lender.refused("send", room, "too late") == "POLICY_DENIED"
    wait_for(lambda: said(worker, room) == everything, WAIT_SECONDS, "all of it on the other side")


def test_the_room_is_forgotten_with_the_delegation_on_each_side_by_itself(
    both: tuple[Typing, Typing], project: Path
) -> None:
    lender, worker = both
    kept = lender.json("room", "create", "Kept")["room_id"]
    lender.run("send", kept, "of no delegation")
    running = begin(lender.daemon, project, json.dumps([["ask_human", QUESTION]]))
    open_room = wait_asked(lender, running)["room_id"]
    directory = project.parent / "other"
    directory.mkdir()
    delegation = begin(lender.daemon, directory, json.dumps([]))
    finish(lender.daemon, delegation)
    room = shown(lender, delegation)["room_id"]
    for who in (lender, worker):
        wait_for(
            lambda who=who: room in [item["id"] for item in who.json("prune", "--dry-run")["items"]],
            WAIT_SECONDS,
            "a room that is over",
        )
    assert lender.json("prune", "--older-than", "1h")["items"] == []
    done = lender.json("prune")
    assert {"delegations", "rooms"} <= set(done["counts"])
    assert next(item for item in done["items"] if item["id"] == room)["bytes"] > 0
    left = [one["room_id"] for one in lender.json("room", "list")]
    assert room not in left
    assert {kept, open_room} <= set(left)
    assert said(worker, room), "the other side keeps its own"
    lender.daemon.run("down")
    lender.daemon.wait_gone()
    lender.daemon.up()
    lender.run("send", kept, "again")
    assert room not in [one["room_id"] for one in lender.json("room", "list")]
    assert worker.json("prune")["counts"]["rooms"] >= 1
    assert room not in [one["room_id"] for one in worker.json("room", "list")]
    lender.run("cancel", running)


def test_what_replies_to_an_earlier_question_answers_no_other(both: tuple[Typing, Typing], project: Path) -> None:
    lender, _ = both
    other = {"question": "Which size?", "options": ["small", "large"]}
    delegation = begin(lender.daemon, project, json.dumps([["ask_human", QUESTION], ["ask_human", other]]))
    room = wait_asked(lender, delegation)["room_id"]

    def question(text: str) -> Any:
        there = [one for one in lender.json("read", room) if one["author"].startswith("@helper:")]
        return next((one["ref_id"] for one in there if text in one["body"]), None)

    first = wait_for(lambda: question("Which colour?"), WAIT_SECONDS, "the first question")
    lender.run("send", room, "red", "--reply-to", first)
    second = wait_for(lambda: question("Which size?"), WAIT_SECONDS, "the second question")
    lender.run("send", room, "blue after all", "--reply-to", first)
    lender.run("send", room, "large", "--reply-to", second)
    colour, size = results(lender, delegation)
    assert colour[1].endswith(":\nred")
    assert size[1].endswith(":\nlarge")


def test_a_follow_up_answers_too_and_is_no_other_prompt(both: tuple[Typing, Typing], project: Path) -> None:
    lender, _ = both
    delegation = begin(lender.daemon, project, json.dumps([["ask_human", QUESTION]]))
    wait_asked(lender, delegation)
    lender.run("say", delegation, "blue")
    (answer,) = results(lender, delegation)
    assert answer[1] == "The answer:\nblue"
    (follow_up,) = shown(lender, delegation)["follow_ups"]
    assert follow_up["state"] == "done"


def test_without_rooms_everything_else_is_as_before(tmp_path: Path, project: Path) -> None:
    calls = [["send_message", {"message": "I have begun."}], ["ask_human", QUESTION]]
    with lender_and_helper(tmp_path, rooms=False) as (lender, _):
        delegation = begin(lender.daemon, project, json.dumps(calls))
        assert wait_asked(lender, delegation)["room_id"] is None
        assert "Which colour?" in lender.run("output", delegation)
        lender.run("say", delegation, "blue")
        sent, answer = results(lender, delegation)
        assert sent[0] is True
        assert "there is no conversation" in sent[1]
        assert answer[1] == "The answer:\nblue"
