"""Agents that speak the Agent Client Protocol, good ones and bad ones, each a real process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from sublet.supervisor.acp import conversation as conversation_module
from sublet.supervisor.acp.provider import AcpProvider
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.job import Outcome
from sublet.workspace.sandbox.bubblewrap import Unsandboxed
from support import acp_agent
from support.gates import ListGate
from support.jobs import Log, job

pytestmark = pytest.mark.anyio


def agent(behaviour: str, **provider: object) -> AgentConfig:
    argv = [sys.executable, acp_agent.__file__, behaviour]
    return AgentConfig.model_validate({"id": "test", "provider": {"type": "acp", "argv": argv, **provider}})


async def run(
    tmp_path: Path,
    mode: str,
    gate: ListGate | None = None,
    *,
    seconds: float = 30,
    earlier: str | None = None,
    provider: Mapping[str, object] = {},
) -> tuple[Outcome, Log]:
    log = Log()
    work = replace(job(tmp_path, "mend it", seconds=seconds), gate=gate, provider_session_id=earlier)
    return await AcpProvider(agent(mode, **provider), Unsandboxed()).run(work, log), log


async def test_an_answer_is_reported_and_its_session_told(tmp_path: Path) -> None:
    outcome, log = await run(tmp_path, "good")
    assert outcome == Outcome("done", "you said: mend it", provider_session_id="ses-1")
    assert log.text() == "you said: mend it"
    assert log.text("stderr") == "", "its own log is no work"


async def test_a_permission_is_decided_by_the_gate_and_the_call_is_named_by_us(tmp_path: Path) -> None:
    gate = ListGate(["file.write"])
    outcome, log = await run(tmp_path, "write", gate)
    assert outcome.summary == "written"
    assert (tmp_path / "mount/workspace/written").read_text() == "by the agent"
    [call] = gate.asked
    assert (call.tool, call.paths, call.call_id) == ("file.write", ("workspace/written",), "c1")
    assert call.arguments == {"file_path": str(tmp_path / "mount/workspace/written")}
    assert gate.told == [("file.write", None)]
    assert "tool: Write written" in log.text("note")


async def test_what_is_denied_stays_undone(tmp_path: Path) -> None:
    gate = ListGate([])
    outcome, log = await run(tmp_path, "write", gate)
    assert outcome.summary == "not written: no"
    assert not (tmp_path / "mount/workspace/written").exists()
    assert gate.told == []
    assert "refused: Write written: file.write is not in the list" in log.text("note")


async def test_without_a_gate_nothing_is_allowed(tmp_path: Path) -> None:
    outcome, _ = await run(tmp_path, "write")
    assert outcome.summary == "not written: no"


@pytest.mark.parametrize(("mode", "answer"), [("only-always", "no"), ("no-options", "cancelled")])
async def test_nothing_is_allowed_for_ever(tmp_path: Path, mode: str, answer: str) -> None:
    gate = ListGate()
    outcome, _ = await run(tmp_path, mode, gate)
    assert outcome.summary == f"not written: {answer}"
    assert gate.told == [("file.write", "it can't be allowed just once")]


@pytest.mark.parametrize(
    ("mode", "reason", "detail"),
    [
        ("exit", "crashed", "it ended in the middle of the conversation (exit status 7)"),
        ("killed", "crashed", "it ended in the middle of the conversation (ended by SIGKILL)"),
        ("huge-line", "crashed", "it sent a message of more than 16 MiB"),
        ("storm", "crashed", "it made more than 64 requests at once"),
        ("same-id", "crashed", "it used the id of a request again"),
        ("long-id", "crashed", "the id of its request has more than 256 characters"),
        ("garbage", "crashed", "what it prints is not the Agent Client Protocol"),
        ("version", "crashed", "it speaks version 99 of the protocol"),
        ("login", "crashed", "it needs a login"),
        ("error", "crashed", "it answered with an error: no model"),
        ("no-stop-reason", "crashed", "something that the protocol does not have"),
        ("refusal", "failed", "it refuses to do that"),
    ],
)
async def test_misbehaviour_ends_the_work_and_is_told(tmp_path: Path, mode: str, reason: str, detail: str) -> None:
    class SlowGate(ListGate):
        ask = staticmethod(lambda _call: asyncio.Event().wait())  # type: ignore[assignment]

    outcome, _ = await run(tmp_path, mode, SlowGate())
    assert outcome.reason == reason
    assert detail in outcome.detail


async def test_an_agent_that_never_begins_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation_module, "START_SECONDS", 0.5)
    outcome, _ = await run(tmp_path, "silent")
    assert outcome.reason == "crashed"
    assert "did not begin a session" in outcome.detail


async def test_the_lease_ends_an_agent_that_hangs(tmp_path: Path) -> None:
    outcome, log = await run(tmp_path, "hang", seconds=2)
    assert outcome.reason == "timeout"
    assert log.text() == "thinking"


async def test_a_flood_meets_the_bound_of_output(tmp_path: Path) -> None:
    config = agent("flood").model_copy(
        update={"limits": agent("flood").limits.model_copy(update={"output_bytes": 1 << 20})}
    )
    outcome = await AcpProvider(config, Unsandboxed()).run(job(tmp_path, "x"), Log())
    assert outcome.reason == "limit"
    assert "output" in outcome.detail or "print" in outcome.detail


async def test_cancelling_leaves_no_process(tmp_path: Path) -> None:
    log = Log()
    task = asyncio.create_task(AcpProvider(agent("hang"), Unsandboxed()).run(job(tmp_path, "x"), log))
    async with asyncio.timeout(20):
        while log.text() != "thinking":
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_greeting_is_skipped_and_other_sessions_are_not_heard(tmp_path: Path) -> None:
    assert (await run(tmp_path, "greeting"))[0].summary == "you said: mend it"
    assert (await run(tmp_path, "other-session"))[0].summary == "for us"


async def test_what_was_not_offered_is_refused(tmp_path: Path) -> None:
    assert (await run(tmp_path, "unknown-method"))[0].summary == "-32601"


async def test_an_earlier_session_is_gone_on_with_and_not_heard_twice(tmp_path: Path) -> None:
    outcome, _ = await run(tmp_path, "load", earlier="ses-0")
    assert (outcome.provider_session_id, outcome.reason) == ("ses-0", "done")
    assert "earlier" not in outcome.summary


async def test_a_lost_session_is_replaced(tmp_path: Path) -> None:
    outcome, log = await run(tmp_path, "load-fails", earlier="ses-0")
    assert (outcome.provider_session_id, outcome.summary) == ("ses-1", "you said: mend it")
    assert log.text("note") == "session: the earlier one is lost, since it answered no such session; a new one begins\n"


async def test_a_session_that_cannot_be_loaded_is_replaced(tmp_path: Path) -> None:
    outcome, log = await run(tmp_path, "good", earlier="ses-0")
    assert outcome.provider_session_id == "ses-1"
    assert "it can't load sessions" in log.text("note")


@pytest.mark.parametrize(("key", "reason"), [("OPENAI_API_KEY", "done"), ("OTHER", "crashed")])
async def test_an_agent_that_wants_to_log_in_is_told_by_which_key(tmp_path: Path, key: str, reason: str) -> None:
    program = tmp_path / "codex-acp"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {acp_agent.__file__} login-key\n")
    program.chmod(0o755)
    config = AgentConfig.model_validate({"id": "t", "provider": {"type": "acp", "preset": "codex"}})
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", key: "dummy"}
    outcome = await AcpProvider(config, Unsandboxed(), environ).run(job(tmp_path, "x"), Log())
    assert outcome.reason == reason, outcome


async def test_a_mode_is_set_and_one_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    assert (await run(tmp_path, "good", provider={"mode": "plan"}))[0].reason == "done"
    assert (tmp_path / "mount/workspace/mode").read_text() == "plan"
    outcome, _ = await run(tmp_path, "leaves-mode", provider={"mode": "plan"})
    assert "it went from mode 'plan' to 'yolo' by itself" in outcome.detail
    outcome, _ = await run(tmp_path, "good", provider={"mode": "yolo"})
    assert "it has no mode 'yolo'; it has ask, plan" in outcome.detail


async def test_a_program_that_is_not_there_was_not_launched(tmp_path: Path) -> None:
    config = AgentConfig.model_validate({"id": "t", "provider": {"type": "acp", "argv": ["no-such-acp-agent"]}})
    outcome = await AcpProvider(config, Unsandboxed()).run(job(tmp_path, "x"), Log())
    assert (outcome.reason, outcome.launched) == ("crashed", False)


@pytest.mark.parametrize(
    "provider",
    [{}, {"preset": "claude", "argv": ["x"]}, {"argv": ["{scratch}"]}, {"preset": "claude", "model": "m"}],
)
def test_a_provider_names_one_program(provider: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        AgentConfig.model_validate({"id": "t", "provider": {"type": "acp", **provider}})


async def test_its_progress_reads_like_work(tmp_path: Path) -> None:
    outcome, log = await run(tmp_path, "works")
    assert outcome.reason == "done", outcome
    assert log.text("note").splitlines() == [
        "tool: Terminal make test",
        "tool: Read src/a.py",
        "failed: Read src/a.py",
        "tool: Think",
    ]
    assert str(tmp_path) not in log.text("note")
