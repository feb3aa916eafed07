"""``sublet capability`` on the command line: words for people, one object for scripts, and the right status."""

from __future__ import annotations

import json

import pytest

from sublet.cli.app import run
from support.fake_control import FakeControl


def said(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = run(["capability", *argv], session=FakeControl().session())
    out, err = capsys.readouterr()
    return status, out, err


def test_list_tells_what_is_wrong_too(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = said(capsys, "list")
    assert status == 0
    assert "says it" in out
    assert "/c/bad" in err
    assert json.loads(said(capsys, "list", "--json")[1])["problems"][0]["directory"] == "/c/bad"


def test_inspect_tells_the_level_that_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "inspect", "say", "--level", "2", "--budget", "50")[1].strip() == "level 2 within 50"
    assert said(capsys, "inspect", "say", "--level", "4")[0] == 2


def test_the_status_tells_whether_it_worked(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "verify", "say")[0] == 1
    assert said(capsys, "run", "say", "--", "a", "-b")[:2] == (0, "a -b")
    status, _, err = said(capsys, "run", "say", "fail")
    assert status == 1
    assert "ended with status 1" in err
