"""The provider ``model``: what the endpoint does, what the gate says, which bounds hold, and what is gone on with."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from support.chat_process import Step
from support.gates import ListGate
from support.model_jobs import model_world

pytestmark = pytest.mark.anyio
WRITE: Step = {"calls": [["file_write", {"path": "a/b.txt", "content": "new\n"}]]}
DONE: Step = {"say": "Done."}


async def test_it_works_by_tools_until_it_answers(tmp_path: Path) -> None:
    with model_world(tmp_path, [{"say": "First.", **WRITE}, {"how": "whole", **DONE}]) as world:
        outcome = await world.run()
        assert (outcome.reason, outcome.summary) == ("done", "Done.")
        assert (world.workspace / "a/b.txt").read_text() == "new\n"
        assert [(call.tool, call.paths) for call in world.gate.asked] == [("file.write", ("workspace/a/b.txt",))]
        assert world.gate.told == [("file.write", None)]
        assert world.log.text() == "First.\nDone.\n"
        assert "file.write" in world.log.text("note")
        assert "2 requests, 220 tokens (200 in, 20 out)" in world.log.text("note")


async def test_what_the_gate_refuses_is_not_done_and_the_model_is_told_why(tmp_path: Path) -> None:
    with model_world(tmp_path, [WRITE, DONE]) as world:
        world.gate = ListGate(["file.read"])
        outcome = await world.run()
        assert outcome.reason == "done"
        assert list(world.workspace.iterdir()) == []
        assert world.stub.results() == ["Refused by policy, and not done: file.write is not in the list."]
        assert world.gate.told == []


async def test_without_a_gate_nothing_is_asked_and_nothing_done(tmp_path: Path) -> None:
    with model_world(tmp_path, [WRITE, DONE]) as world:
        outcome = await world.provider().run(replace(world.job(), gate=None), world.log)
        assert (outcome.reason, outcome.launched) == ("failed", False)
        assert world.stub.requests() == []


async def test_a_lease_for_reading_has_no_tool_that_writes(tmp_path: Path) -> None:
    script: list[Step] = [
        WRITE,
        {"calls": [["shell_exec", {"command": "echo x > f; ls"}]]},
        DONE,
    ]
    with model_world(tmp_path, script) as world:
        await world.run(access_mode="ro")
        offered = [tool["function"]["name"] for tool in world.stub.requests()[0]["body"]["tools"]]
        assert offered == ["file_read", "file_list", "file_search", "shell_exec"]
        first, second = world.stub.results()
        assert first.startswith("Error: there is no tool 'file_write'")
        assert "Read-only file system" in second
        assert list(world.workspace.iterdir()) == []


async def test_without_exec_no_program_can_be_started(tmp_path: Path) -> None:
    call: Step = {"calls": [["shell_exec", {"command": "touch x"}], ["shell.exec", {"command": "touch x"}]]}
    with model_world(tmp_path, [call, DONE], sandbox={"allow_exec": False}) as world:
        await world.run()
        assert all(result.startswith("Error: there is no tool") for result in world.stub.results())
        assert list(world.workspace.iterdir()) == []
        assert world.gate.asked == []


async def test_nothing_outside_of_the_lease_is_read_or_written(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    read = ["/etc/passwd", "../../secret.txt", "a/../../secret.txt", "link", "dir/secret.txt", "fifo", "/meta/../x"]
    script: list[Step] = [
        {"calls": [["file_read", {"path": path}] for path in read]},
        {"calls": [["file_write", {"path": path, "content": "x"}] for path in ("link", "dir/new.txt", "/meta/x")]},
        {"calls": [["file_search", {"text": "secret"}], ["file_move", {"path": "link", "to": "/meta/x"}]]},
        {"calls": [["file_read", {"path": str(tmp_path / "mount/workspace/in.txt")}]]},
        DONE,
    ]
    with model_world(tmp_path, script) as world:
        (world.workspace / "link").symlink_to(tmp_path / "secret.txt")
        (world.workspace / "dir").symlink_to(tmp_path)
        (world.workspace / "in.txt").write_text("inside")
        os.mkfifo(world.workspace / "fifo")
        await world.run()
        results = world.stub.results()
        assert all(result.startswith("Error: ") for result in results[:10]), results
        assert results[10] == "[Nothing found in 1 files.]"
        assert results[11].startswith("Error: ")
        assert results[12] == "inside"
        assert (tmp_path / "secret.txt").read_text() == "secret"
        assert not (tmp_path / "new.txt").exists()
        assert world.gate.asked[1].paths == ("/../../secret.txt",)


async def test_files_are_searched_edited_moved_and_deleted(tmp_path: Path) -> None:
    script: list[Step] = [
        {"calls": [["file_search", {"text": "NEEDLE", "ignore_case": True, "name": "*.py"}]]},
        {"calls": [["file_edit", {"path": "x.py", "old": "a", "new": "b"}]]},
        {"calls": [["file_edit", {"path": "x.py", "old": "a", "new": "b", "all": True}]]},
        {"calls": [["file_edit", {"path": "bin", "old": "a", "new": "b"}], ["file_read", {"path": "bin"}]]},
        {"calls": [["file_move", {"path": "x.py", "to": "y.py"}], ["file_move", {"path": "y.py", "to": "z.txt"}]]},
        {"calls": [["file_delete", {"path": "full"}], ["file_delete", {"path": "full/z"}]]},
        {"calls": [["file_delete", {"path": "full"}], ["file_delete", {"path": "."}]]},
        {"calls": [["file_read", {"path": "long.txt", "first_line": 3, "lines": 2}]]},
        DONE,
    ]
    with model_world(tmp_path, script) as world:
        (world.workspace / "x.py").write_text("a\n# a needle\n")
        (world.workspace / "z.txt").write_text("needle\n")
        (world.workspace / "bin").write_bytes(b"a\0")
        (world.workspace / "long.txt").write_text("".join(f"{n}\n" for n in range(1, 8)))
        (world.workspace / "full").mkdir()
        (world.workspace / "full" / "z").touch()
        await world.run()
        found = world.stub.results()
        assert found[0] == "x.py:2:# a needle"
        assert found[1].startswith("Error: 'old' is in the file 4 times") or "times; send more" in found[1]
        assert found[2].startswith("Replaced ")
        assert found[3:5] == ["Error: the file is no text"] * 2
        assert found[5:7] == ["Moved.", "Error: there is something of that name already"]
        assert found[7:10] == ["Error: the directory is not empty", "Deleted.", "Deleted."]
        assert found[10].startswith("Error: ")
        assert found[11] == "3\n4\n[Lines 3 to 4 of 8.]"
        assert (world.workspace / "y.py").read_text() == "b\n# b needle\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"path": "a.txt",}', None),
        ('```json\n{"path": "a.txt"}\n```', None),
        ('"{\\"path\\": \\"a.txt\\"}"', None),
        ('{"path": "a.txt", "content": "half a f', "no valid JSON"),
        ("[]", "one JSON object"),
        ('{"path": 3}', "/path"),
        ('{"path": "a.txt", "mode": "x"}', "mode"),
        ("{}", "path"),
    ],
)
async def test_malformed_arguments_are_mended_or_answered(tmp_path: Path, arguments: str, told: str | None) -> None:
    with model_world(tmp_path, [{"calls": [["file_read", arguments]]}, DONE]) as world:
        (world.workspace / "a.txt").write_text("text")
        assert (await world.run()).reason == "done"
        (result,) = world.stub.results()
        if told is None:
            assert result == "text"
        else:
            assert result.startswith("Error: ")
            assert told in result
            assert world.gate.asked == []


async def test_a_model_that_only_calls_nonsense_is_given_up(tmp_path: Path) -> None:
    with model_world(tmp_path, [{"calls": [["no_tool", "{"]]}]) as world:
        outcome = await world.run()
        assert outcome.reason == "failed"
        assert "calls in a row that can't be read" in outcome.detail
        assert len(world.stub.requests()) == 12


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ({"max_steps": 3}, "asked its model 3 times"),
        ({"max_tokens": 300}, "used 330 tokens, and 300 (max_tokens)"),
        (
            {"prices": {"input_per_million": 1e4, "output_per_million": 1e5}, "max_cost": 5},
            "cost 6, and 5 (max_cost) is its bound",
        ),
    ],
)
async def test_a_budget_ends_the_work_and_is_told(tmp_path: Path, bounds: dict[str, Any], told: str) -> None:
    with model_world(tmp_path, [{"say": "On it.", **WRITE}], provider=bounds) as world:
        outcome = await world.run()
        assert (outcome.reason, outcome.summary) == ("limit", "On it.")
        assert told in outcome.detail
        assert len(world.stub.requests()) == 3


async def test_tokens_are_estimated_where_the_endpoint_tells_none(tmp_path: Path) -> None:
    with model_world(tmp_path, [{"usage": None, **WRITE}], provider={"max_tokens": 5_000}) as world:
        outcome = await world.run()
        assert outcome.reason == "limit"
        assert "used about " in outcome.detail


async def test_an_endpoint_that_is_busy_is_asked_again(tmp_path: Path) -> None:
    script: list[Step] = [
        {"status": 429, "headers": {"Retry-After": "1"}},
        {"status": 503},
        {"how": "die", "say": "Half of it"},
        WRITE,
        {"status": 500},
        DONE,
    ]
    with model_world(tmp_path, script) as world:
        outcome = await world.run()
        assert (outcome.reason, outcome.summary) == ("done", "Done.")
        assert len(world.gate.asked) == 1, "what was asked for again was not done again"
        assert world.log.text("note").count("asked again") == 4


@pytest.mark.parametrize(
    ("step", "told", "asked"),
    [
        ({"status": 401, "message": "bad key s3cret"}, "refuses the key in STUB_KEY: status 401: bad key [key]", 1),
        ({"status": 400, "message": "no such model"}, "refuses the request: status 400: no such model", 1),
        ({"status": 302, "headers": {"Location": "http://127.0.0.1:1/"}}, "status 302", 1),
        ({"status": 500, "message": "boom"}, "status 500: boom (asked 5 times)", 5),
        ({"status": 429, "headers": {"Retry-After": "3600"}}, "status 429", 1),
        ({"how": "hang"}, "said nothing for 0.4 s (asked 5 times)", 5),
        ({"how": "stall", "say": "x"}, "said nothing for 0.4 s (asked 5 times)", 5),
        ({"how": "die", "say": "x"}, "(asked 5 times)", 5),
        ({"how": "garbage"}, "too large (asked 5 times)", 5),
    ],
)
async def test_an_endpoint_that_fails_is_told_truthfully(tmp_path: Path, step: Step, told: str, asked: int) -> None:
    key = {"provider": {"api_key_env": "STUB_KEY"}}
    with model_world(tmp_path, [step], environ={"STUB_KEY": "s3cret"}, **key) as world:
        if step.get("how") in ("hang", "stall"):
            world.silence_seconds = 0.4
        outcome = await world.run()
        assert (outcome.reason, outcome.launched) == ("failed", False)
        assert told in outcome.detail
        assert len(world.stub.requests()) == asked
        assert world.stub.requests()[0]["authorization"] == "Bearer s3cret"
        assert "s3cret" not in outcome.detail + world.log.text("note")


async def test_a_key_that_is_not_there_is_named(tmp_path: Path) -> None:
    with model_world(tmp_path, [DONE], provider={"api_key_env": "STUB_KEY"}) as world:
        outcome = await world.run()
        assert "has no STUB_KEY" in outcome.detail
        assert world.stub.requests() == []


async def test_time_that_is_over_ends_a_request_and_is_told(tmp_path: Path) -> None:
    with model_world(tmp_path, [WRITE, {"how": "hang"}], timeout_seconds=1.5) as world:
        outcome = await world.run()
        assert outcome.reason == "timeout"
        assert (world.workspace / "a/b.txt").exists()


async def test_cancelling_ends_a_program_and_a_later_job_goes_on(tmp_path: Path) -> None:
    script: list[Step] = [{"calls": [["shell_exec", {"command": "touch started; sleep 600"}], ["file_list", {}]]}, DONE]
    with model_world(tmp_path, script) as world:
        work = asyncio.create_task(world.run())
        with anyio.fail_after(20):
            while not (world.workspace / "started").exists():
                await anyio.sleep(0.02)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert world.gate.told == [("shell.exec", "it was ended with the task")]
        (kept,) = (tmp_path / "conversations").iterdir()
        outcome = await world.run("Go on.", provider_session_id=kept.stem)
        assert (outcome.reason, outcome.provider_session_id) == ("done", kept.stem)
        messages = world.stub.requests()[-1]["body"]["messages"]
        assert [one["role"] for one in messages] == ["system", "user", "assistant", "tool", "tool", "user"]
        assert world.stub.results() == ["[It was not done: the task was ended first.]"] * 2


async def test_a_session_of_another_agent_or_of_nobody_is_not_gone_on_with(tmp_path: Path) -> None:
    with model_world(tmp_path, [DONE]) as world:
        first = await world.run("Remember me.")
        assert first.provider_session_id is not None
        world.config = world.config.model_copy(update={"id": "other"})
        for asked in (first.provider_session_id, "chat_" + "0" * 32, "../../etc/passwd"):
            outcome = await world.run("Who am I?", provider_session_id=asked)
            assert outcome.provider_session_id not in (None, asked)
            assert [one["content"] for one in world.stub.requests()[-1]["body"]["messages"][1:]] == ["Who am I?"]
        assert "can't be gone on with" in world.log.text("note")


async def test_old_results_are_left_out_when_the_context_is_full(tmp_path: Path) -> None:
    read: Step = {"calls": [["file_read", {"path": "big.txt"}]], "usage": None}
    with model_world(tmp_path, [*[read] * 8, DONE], provider={"context_tokens": 30_000}) as world:
        (world.workspace / "big.txt").write_text("word " * 3_000)
        assert (await world.run()).reason == "done"
        results = world.stub.results()
        assert results[0].startswith("[A result of 15,000 characters was here")
        assert results[-1].startswith("word word")


async def test_an_endpoint_whose_context_is_smaller_gets_less(tmp_path: Path) -> None:
    read: Step = {"calls": [["file_read", {"path": "big.txt"}]]}
    full: Step = {"status": 400, "message": "This model's maximum context length is 8192 tokens"}
    with model_world(tmp_path, [*[read] * 6, full, DONE]) as world:
        (world.workspace / "big.txt").write_text("word " * 3_000)
        assert (await world.run()).reason == "done"
        refused, accepted = (len(str(one["body"]["messages"])) for one in world.stub.requests()[-2:])
        assert accepted < refused / 2


async def test_long_output_is_cut_in_the_middle_and_time_of_a_command_is_bounded(tmp_path: Path) -> None:
    script: list[Step] = [
        {"calls": [["shell_exec", {"command": "seq 1 100000; echo oops >&2; exit 3"}]]},
        {"calls": [["shell_exec", {"command": "sleep 60", "timeout_seconds": 1}]]},
        {"calls": [["shell_exec", {"command": "cat /dev/tcp 2>&1; ls $SUBLET_META; echo $STUB_KEY"}]]},
        DONE,
    ]
    with model_world(tmp_path, script, environ={"STUB_KEY": "s3cret"}, provider={"api_key_env": "STUB_KEY"}) as world:
        assert (await world.run()).reason == "done"
        first, second, third = world.stub.results()
        assert first.startswith("[exit status 3]\n1\n2\n")
        assert "characters left out" in first
        assert first.endswith("100000\n\noops\n")
        assert second.startswith("[ended after 1 s")
        assert "s3cret" not in third


async def test_a_command_that_meets_a_limit_ends_the_task(tmp_path: Path) -> None:
    script: list[Step] = [{"calls": [["shell_exec", {"command": "yes"}]]}, DONE]
    with model_world(tmp_path, script, limits={"output_bytes": 1_000_000}) as world:
        outcome = await world.run()
        assert outcome.reason == "limit"
        assert "printed more than" in outcome.detail
        assert world.gate.told[0][1] is not None


async def test_a_packed_answer_is_not_unfolded(tmp_path: Path) -> None:
    with model_world(tmp_path, [{"status": 200, "headers": {"Content-Encoding": "gzip"}}]) as world:
        outcome = await world.run()
        assert outcome.reason == "failed"
        assert "packed" in outcome.detail
        assert len(world.stub.requests()) == 1


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def test_the_endpoint_is_told_of_the_schema_of_an_answer(tmp_path: Path) -> None:
    with model_world(tmp_path, [WRITE, {"say": '{"n": 3}'}]) as world:
        outcome = await world.run(answer_schema=SCHEMA)
        assert outcome.summary == '{"n": 3}'
        told = [one["body"]["response_format"] for one in world.stub.requests()]
        assert (
            told == [{"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": False}}] * 2
        )


async def test_an_endpoint_that_takes_no_schema_is_not_told_of_it_again(tmp_path: Path) -> None:
    refusal: Step = {"status": 400, "message": "response_format is not supported by this model"}
    with model_world(tmp_path, [refusal, WRITE, DONE]) as world:
        outcome = await world.run(answer_schema=SCHEMA)
        assert (outcome.reason, outcome.summary) == ("done", "Done.")
        assert ["response_format" in one["body"] for one in world.stub.requests()] == [True, False, False]
        assert "takes no schema" in world.log.text("note")


async def test_another_refusal_is_none_of_the_schema(tmp_path: Path) -> None:
    with model_world(tmp_path, [{"status": 400, "message": "no such model"}]) as world:
        outcome = await world.run(answer_schema=SCHEMA)
        assert (outcome.reason, len(world.stub.requests())) == ("failed", 1)


async def test_the_schema_is_kept_to_the_prompt_where_the_file_says_so(tmp_path: Path) -> None:
    with model_world(tmp_path, [DONE], provider={"json_schema": False}) as world:
        await world.run(answer_schema=SCHEMA)
        assert ["response_format" in one["body"] for one in world.stub.requests()] == [False]
