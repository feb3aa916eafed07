"""What the owner's own programs are told at the end, and that nothing of it becomes a command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from sublet.daemon.lending import end_hook
from sublet.daemon.lending.end_hook import EndHook, notice
from sublet.protocol.lifecycle import DelegationState
from support.fake_control import delegation

pytestmark = pytest.mark.anyio
WAIT_SECONDS = 15.0


async def told(hook: EndHook, *descriptions: str, wanted: Path) -> str:
    """Have ``hook`` told of delegations and return what it has written once the last one is in it."""
    async with anyio.create_task_group() as group:
        group.start_soon(hook.serve)
        for description in descriptions:
            hook.tell(delegation(DelegationState.COMPLETED, description=description))
        with anyio.fail_after(WAIT_SECONDS):
            while not wanted.exists() or wanted.read_text().count("\n") < len(descriptions):
                await anyio.sleep(0.02)
        group.cancel_scope.cancel()
    return wanted.read_text()


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def environ(tmp_path: Path, **more: str) -> Mapping[str, str]:
    return {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path), "API_KEY": "k3y", **more}


async def test_the_command_gets_the_delegation_on_stdin_and_nothing_else(tmp_path: Path) -> None:
    hostile = "$(touch owned); `touch owned` --help"
    wanted = tmp_path / "got"
    program = script(tmp_path / "hook", f'[ $# -eq 1 ] && [ -z "$API_KEY" ] && cat >>{wanted}')
    hook = EndHook([program, "fixed"], notify=False, environ=environ(tmp_path))
    lines = (await told(hook, hostile, "second", wanted=wanted)).splitlines()
    assert [json.loads(line)["description"] for line in lines] == [hostile, "second"]
    assert json.loads(lines[0])["state"] == "completed"
    assert not (tmp_path / "owned").exists()


async def test_a_hook_that_hangs_is_ended_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(end_hook, "HOOK_SECONDS", 0.3)
    wanted, once = tmp_path / "got", tmp_path / "once"
    text = f"if mkdir {once} 2>/dev/null; then sleep 600; fi; cat >/dev/null; printf 'x\\n\\n' >>{wanted}"
    hook = EndHook([script(tmp_path / "hook", text)], notify=False, environ=environ(tmp_path))
    assert await told(hook, "first", "second", wanted=wanted) == "x\n\n"


async def test_a_program_that_is_not_there_or_fails_disturbs_nobody(tmp_path: Path) -> None:
    wanted = tmp_path / "got"
    script(tmp_path / "notify-send", f'echo "$*" >>{wanted}; exit 3')
    hook = EndHook([str(tmp_path / "missing")], notify=True, environ=environ(tmp_path))
    said = await told(hook, "a <b>&", "b", wanted=wanted)
    assert said.splitlines()[0] == "--app-name=sublet -- bob: completed a &lt;b>&amp;"


def test_a_notice_holds_no_controls() -> None:
    view = delegation(DelegationState.ERROR, description="x\x1b]9;evil\x07\u202eb")
    assert notice(view) == ("bob: error", "x]9;evilb") or "\x1b" not in "".join(notice(view))
    assert not any(ord(character) < 32 for character in "".join(notice(view)))


async def test_without_hooks_nothing_is_kept() -> None:
    hook = EndHook([], notify=False)
    for _ in range(end_hook.MAX_WAITING + 1):
        hook.tell(delegation(DelegationState.COMPLETED))
    assert hook._waiting.empty()
