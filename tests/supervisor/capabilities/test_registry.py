"""Directories of capabilities: regular files of their own only, and one that is broken harms no other."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sublet.protocol.errors import LocalCode, SubletError
from sublet.supervisor.capabilities.registry import MAX_DOCUMENT_BYTES, read_capabilities
from sublet.supervisor.capabilities.runs import CapabilityRuns
from sublet.supervisor.capabilities.tool_source import CapabilityTools
from sublet.supervisor.tool_gate import ToolCall
from sublet.workspace.sandbox.bubblewrap import BubblewrapSandbox
from support.jobs import job

SCRIPT = '#!/bin/sh\necho "args: $*"; echo "secret: ${SECRET:-none}"; cat; test "$1" != fail\n'


def add(root: Path, name: str, **more: Any) -> Path:
    directory = root / name
    directory.mkdir(parents=True)
    file = {"id": name, "name": name, "version": "1", "description": f"does {name}", "command": "./run.sh", **more}
    (directory / "module.json").write_text(json.dumps(file))
    (directory / "README.md").write_text(f"About {name}")
    (directory / "run.sh").write_text(SCRIPT)
    return directory


def test_good_ones_are_there_whatever_the_others_are(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("KEY")
    root = tmp_path / "capabilities"
    add(root, "good")
    add(root, "off", enabled=False)
    (add(root, "linked-doc") / "README.md").unlink()
    (root / "linked-doc" / "README.md").symlink_to(secret)
    (add(root, "linked-module") / "module.json").rename(tmp_path / "m.json")
    (root / "linked-module" / "module.json").symlink_to(tmp_path / "m.json")
    add(tmp_path, "elsewhere")
    (root / "linked").symlink_to(tmp_path / "elsewhere")
    (add(root, "no-program") / "run.sh").unlink()
    (add(root, "pipe") / "cli.md").unlink(missing_ok=True)
    os.mkfifo(root / "pipe" / "cli.md")
    (add(root, "large") / "cli.md").write_text("x" * (MAX_DOCUMENT_BYTES + 1))
    (root / "empty").mkdir()
    add(root, "schema", arguments={"$ref": "http://127.0.0.1/x"})
    (root / "BAD NAME").mkdir()
    (root / "a-file").write_text("")
    found = read_capabilities([root, tmp_path / "absent"])
    assert sorted(found.found) == ["good", "off"]
    assert {Path(where).name for where in found.problems} == {
        "linked-doc", "linked-module", "linked", "no-program", "pipe", "large", "empty", "schema", "BAD NAME"
    }  # fmt: skip
    assert found.get("good").documents.readme == "About good"
    for name in ("off", "absent", "../good"):
        with pytest.raises(SubletError) as absent:
            found.get(name)
        assert absent.value.code is LocalCode.NOT_FOUND


def test_the_version_is_a_digest_of_all_that_is_there(tmp_path: Path) -> None:
    one = add(tmp_path, "one")
    before = read_capabilities([tmp_path]).version
    assert before == read_capabilities([tmp_path]).version
    (one / "run.sh").write_text(SCRIPT + "# changed\n")
    changed = read_capabilities([tmp_path]).version
    add(tmp_path, "two")
    assert len({before, changed, read_capabilities([tmp_path]).version}) == 3


def test_the_earlier_directory_counts(tmp_path: Path) -> None:
    add(tmp_path / "a", "one", description="first")
    add(tmp_path / "b", "one", description="second")
    found = read_capabilities([tmp_path / "a", tmp_path / "b"])
    assert found.get("one").module.description == "first"


@pytest.mark.anyio
async def test_runs_are_confined_and_see_only_the_variables_that_are_named(tmp_path: Path) -> None:
    root = tmp_path / "capabilities"
    add(root, "plain", defaultArgs=["-d"])
    add(root, "told", environment=["SECRET"])
    add(root, "look", command="ls", defaultArgs=[str(root)])
    add(root, "slow", command="sleep", timeoutSeconds=0.2)
    found = read_capabilities([root])
    environ = {"PATH": os.environ["PATH"], "SECRET": "s3"}
    runs = CapabilityRuns(BubblewrapSandbox([root]), tmp_path / "scratch", environ=environ)
    ended = await runs.run(found.get("plain"), ["a b", "{workspace}"], stdin="in")
    assert (ended.exit_code, ended.stdout) == (0, "args: -d a b {workspace}\nsecret: none\nin")
    assert "secret: s3" in (await runs.run(found.get("told"), [])).stdout
    assert (await runs.run(found.get("plain"), ["fail"])).ok  # its default argument comes first
    assert not (await runs.run(found.get("told"), ["fail"])).ok
    assert (await runs.run(found.get("look"), [])).exit_code not in (0, None)
    assert "was over" in (await runs.run(found.get("slow"), ["60"])).reason
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.anyio
async def test_arguments_are_held_against_the_schema_before_anything_starts(tmp_path: Path) -> None:
    add(tmp_path, "strict", command="/nonexistent", arguments={"items": {"enum": ["list"]}, "minItems": 1})
    runs = CapabilityRuns(BubblewrapSandbox(), tmp_path / "scratch")
    for arguments in ([], ["drop"], ["x"] * 65, ["a\0b"], ["y" * 9_000]):
        with pytest.raises(SubletError) as refused:
            await runs.run(read_capabilities([tmp_path]).get("strict"), arguments)
        assert refused.value.code is LocalCode.INVALID_ARGUMENT
    assert not (tmp_path / "scratch").exists()


@pytest.mark.anyio
async def test_agents_are_told_the_first_level_only_and_ask_for_more(tmp_path: Path) -> None:
    root = tmp_path / "capabilities"
    add(root, "one")
    add(root, "two")
    found = read_capabilities([root])
    runs = CapabilityRuns(BubblewrapSandbox(), tmp_path / "scratch")
    tools = CapabilityTools(
        lambda: found, runs, lambda agent: ("one",) if agent == "a" else None, lambda _agent, _tool: True
    )
    [offer] = tools.offers("a")
    assert (offer.tool, "does one" in offer.description, "About" in offer.description) == (
        "capability.one",
        True,
        False,
    )
    assert [one.tool for one in tools.offers("b")] == ["capability.one", "capability.two"]
    work = job(tmp_path, "")
    asked = await tools.call(ToolCall("capability.one", {"inspect": 3}, "1"), work, "coder")
    assert "About one" in asked.text
    ran = await tools.call(ToolCall("capability.one", {"args": ["x"]}, "2"), work, "coder")
    assert (ran.error, "args: x" in ran.text) == (None, True)
    assert (
        await tools.call(ToolCall("capability.one", {"args": ["fail"]}, "3"), work, "coder")
    ).error == "it ended with status 1"
    with pytest.raises(SubletError, match="list of strings"):
        await tools.call(ToolCall("capability.one", {"args": "x"}, "4"), work, "coder")
