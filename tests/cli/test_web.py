"""``sublet web`` and ``sublet audit denials``, as they are typed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sublet.cli.app import run
from sublet.cli.commands.daemon import web
from sublet.protocol.canonical import JsonValue
from support.daemons import wait_for
from support.fake_control import FakeControl
from support.fake_policy import FakePolicy

URL = "http://127.0.0.1:8640/#login=id.secret"
DENIED: dict[str, JsonValue] = {
    "seq": 9,
    "at": "2026-11-28T10:00:00.000Z",
    "kind": "decision",
    "decision": "deny",
    "subject": "agent coder",
    "action": "tool.call",
    "resource": "file.write\u202e",
    "layer": "global",
    "rule": "no-notes",
    "reason": "it leaves no notes\x1b[31m",
}


def test_the_link_stands_alone_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["web"], session=FakeControl().session()) == 0
    out, err = capsys.readouterr()
    assert out == f"{URL}\n"
    assert "once" in err
    assert run(["web", "--json"], session=FakeControl().session()) == 0
    assert json.loads(capsys.readouterr().out)["url"] == URL


def test_a_browser_is_opened_without_the_secret_in_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    (home / "state").mkdir(parents=True)
    opened = tmp_path / "opened"
    opener = tmp_path / "xdg-open"
    opener.write_text(
        f'#!/bin/sh\necho "$@" > {opened}.new; echo $$ > {opened}.pid\n'
        f'cat "$1" >> {opened}.new; mv {opened}.new {opened}\n'
    )
    opener.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SUBLET_HOME", str(home))
    assert run(["web", "--open"], session=FakeControl().session()) == 0
    wait_for(opened.exists, 30, "the browser")
    os.waitpid(int(opened.with_name("opened.pid").read_text()), 0)  # else it is left to whatever test comes next
    arguments, _, page = opened.read_text().partition("\n")
    assert "secret" not in arguments
    assert URL in page
    file = home / "state" / web.OPEN_FILE
    assert arguments == str(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert capsys.readouterr().out == f"{URL}\n"


def test_without_a_browser_no_link_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["web", "--open"], session=FakeControl().session()) != 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "sublet web" in err


def test_denials_name_the_rule_and_the_reason_and_steer_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl(
        ruling=FakePolicy(entries=[{"seq": 1, "decision": "allow"}, {**DENIED}, {**DENIED, "seq": 10}])
    )
    assert run(["audit", "denials"], session=control.session()) == 0
    out = capsys.readouterr().out
    assert out.index("10") < out.index("no-notes")
    assert "it leaves no notes" in out
    assert not {"\u202e", "\x1b"} & set(out)
    assert run(["audit", "denials", "--limit", "1", "--json"], session=control.session()) == 0
    page = json.loads(capsys.readouterr().out)
    assert ([entry["seq"] for entry in page["entries"]], page["cursor"]) == ([10], 7)
    assert run(["audit", "denials", "--limit", "1"], session=control.session()) == 0
    assert "--before 7" in capsys.readouterr().err
    assert run(["audit", "denials"], session=FakeControl().session()) == 0
    assert "Nothing was denied" in capsys.readouterr().err
