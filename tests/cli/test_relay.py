"""``sublet relay`` and ``register`` as they are typed: what they print, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sublet.cli.app import run
from sublet.cli.commands.relay import register, relay

DIRECTORY = "--dir"


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = run(list(words))
    told = capsys.readouterr()
    return status, told.out, told.err


def test_a_relay_is_made_listed_and_told_whom_to_take_the_name_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "r")
    made = ("relay", "init", "--domain", "relay.test", DIRECTORY, place, "--host", "127.0.0.1")
    status, out, _ = typed(capsys, *made, "--json")
    assert status == 0
    assert json.loads(out) == {"domain": "relay.test", "dir": place, "authority": f"{place}/authority.pem"}
    assert json.loads((tmp_path / "r" / "relay.json").read_text())["hosts"] == ["127.0.0.1"]
    status, out, _ = typed(capsys, *made, "--json")
    assert (status, json.loads(out)["error"]["code"]) == (1, "CONFLICT")
    assert typed(capsys, "relay", "names", DIRECTORY, place)[1].strip() == "Nobody has a name here yet."
    assert json.loads(typed(capsys, "relay", "names", DIRECTORY, place, "--json")[1]) == []
    status, out, _ = typed(capsys, "relay", "revoke", "alice", DIRECTORY, place, "--json")
    assert (status, json.loads(out)["error"]["code"]) == (1, "NOT_FOUND")
    assert typed(capsys, "relay", "init", "--domain", "relay.test", DIRECTORY, str(tmp_path / "s"))[0] == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("init", "--domain", "Relay Test"), "INVALID_ARGUMENT"),
        (("init", "--domain", "relay.test", "--host", "a b"), "INVALID_ARGUMENT"),
        (("run",), "NOT_FOUND"),
        (("names",), "NOT_FOUND"),
        (("revoke", "alice"), "NOT_FOUND"),
        (("run", "--listen", "tcp/127.0.0.1:0"), "INVALID_ARGUMENT"),
        (("run", "--listen", "tls/127.0.0.1"), "INVALID_ARGUMENT"),
        (("run", "--registration", "nowhere"), "INVALID_ARGUMENT"),
    ],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: str
) -> None:
    status, out, _ = typed(capsys, "relay", *words, DIRECTORY, str(tmp_path / "none"), "--json")
    assert status != 0
    assert json.loads(out)["error"]["code"] == code
    assert not (tmp_path / "none").exists()


def test_the_relay_is_run_where_no_command_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = typed(capsys, "relay", DIRECTORY, str(tmp_path), "--json")
    assert (status, json.loads(out)["error"]["code"]) == (1, "NOT_FOUND")
    assert relay.relay.info.name == "relay"
    assert register.register.__name__ == "register"


def test_a_name_at_the_relay_needs_the_key_and_a_link_does_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from sublet.cli.options import pairing

    monkeypatch.setenv("SUBLET_HOME", str(tmp_path))
    assert pairing.no_name("x").code == "INVALID_ARGUMENT"
    status, _, err = typed(capsys, "register", "alice")
    assert status == 4
    assert "daemon" in err
