"""``sublet ask --schema`` on a real daemon with a real agent: passed, asked again, rejected, or a person asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemons import Daemon

# Says something else each time it is asked anew: the prompt tells what was wrong with its last answer.
SCRIPT = """
prompt=$(cat)
case $prompt in
*stubborn*) echo "I would rather not say." ;;
*"previous answer"*) printf 'Now then:\\n```json\\n{"count": "3", "secret": "x",}\\n```\\n' ;;
*) echo "There are three." ;;
esac
"""
AGENT = {"id": "counter", "role": "executor", "provider": {"type": "command", "argv": ["sh", "-c", SCRIPT]}}
SCHEMA = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    one = Daemon(tmp_path_factory.mktemp("g") / "a")
    try:
        yield one.up(agent=AGENT)
    finally:
        one.down()


@pytest.fixture
def schema(tmp_path: Path) -> str:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA))
    return str(file)


def test_an_answer_passes_when_it_was_asked_for_again(daemon: Daemon, schema: str) -> None:
    found = daemon.json("ask", "How many?", "--schema", schema, "--mask", "/count")
    assert found["structured"] == {"count": 3}
    assert json.loads(found["result"]) == {"count": 3}
    assert any("mended" in warning for warning in found["warnings"])


def test_only_the_answer_is_printed(daemon: Daemon, schema: str) -> None:
    done = daemon.run("ask", "How many?", "--schema", schema, "--mask", "/count")
    assert json.loads(done.stdout) == {"count": 3}


def test_a_request_whose_answer_never_passes_is_rejected(daemon: Daemon, schema: str) -> None:
    found = daemon.json("ask", "Be stubborn.", "--schema", schema, check=(5,))
    assert (found["routeDecision"], found["result"]) == ("reject", None)
    assert "no_json" in found["reason"]


def test_or_a_person_is_asked_and_decides_how_it_goes_on(daemon: Daemon, schema: str) -> None:
    asked = daemon.json("ask", "Be stubborn.", "--schema", schema, "--on-failure", "ask_human", check=(9,))
    assert asked["routeDecision"] == "ask_human"
    assert "I would rather not say." in asked["question"]
    session = asked["fingerSessionId"]
    assert daemon.json("sessions", "show", session)["question"] == asked["question"]


def test_a_schema_that_cannot_be_used_is_refused_before_anything_happens(daemon: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "remote.json"
    file.write_text('{"$ref": "http://127.0.0.1:1/s"}')
    done = daemon.run("ask", "x", "--schema", str(file), "--json", check=None)
    assert done.returncode != 0
    assert "refers beyond the schema" in done.stdout + done.stderr
    file.write_text("no json")
    assert "remote.json" in daemon.run("ask", "x", "--schema", str(file), check=(2,)).stderr
