"""What ``serve-tools`` is given: a token, an office, commands; each is taken as it is, or refused."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import pytest

from sublet.app.computer import TOKEN_VARIABLE, GivenToken, place_of, read_token, run_computer, server_commands
from sublet.daemon.peering.identity import load_tls
from sublet.office_client.link import Place
from sublet.protocol.errors import LocalCode, SubletError

pytestmark = pytest.mark.anyio

URL = "https://desk.example:8648"
WHOLE = {"token": "sblt_x", "name": "laptop", "office_id": "an-id", "url": URL, "role": "computer"}


def test_a_token_is_read_alone_or_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    assert read_token(" sblt_x\n") == GivenToken("sblt_x")
    made = load_tls(tmp_path / "keys", ["desk.example"])
    whole = read_token(json.dumps({**WHOLE, "certificate": made.certificate_pem}))
    der = ssl.PEM_cert_to_DER_cert(made.certificate_pem)
    assert whole == GivenToken("sblt_x", "laptop", "an-id", "https://desk.example:8648", der)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "two words", "a\x00b", "x" * 3_000, "{", "{}", json.dumps({**WHOLE, "role": "agent"})),
        *(json.dumps({**WHOLE, "certificate": "none"}), json.dumps({**WHOLE, "token": ""})),
        *(json.dumps({**WHOLE, "url": 3}), "{" * 100),
    ],
)
def test_what_is_no_token_of_a_computer_is_refused(text: str) -> None:
    with pytest.raises(SubletError) as refused:
        read_token(text)
    assert refused.value.code is LocalCode.INVALID_ARGUMENT
    assert "sblt_x" not in str(refused.value)


def test_an_office_is_named_by_url_or_by_the_id_beside_its_token() -> None:
    token = GivenToken("t", "laptop", "an-id", "https://desk.example:8648", b"der")
    assert place_of("https://desk.example:8648/other", token) == Place("https://desk.example:8648", "other", b"der")
    assert place_of("https://other.example/a%2Fb", token) == Place("https://other.example", "a/b", None)
    assert place_of("http://127.0.0.1:1/x/y/", GivenToken("t")) == Place("http://127.0.0.1:1/x", "y", None)
    assert place_of("an-id", token) == Place("https://desk.example:8648", "an-id", b"der")
    for name in ("desk", ""):
        assert place_of(name, token) is None


@pytest.mark.parametrize(
    "office",
    [
        *("http://desk.example/x", "http://192.0.2.1:8648/x", "ftp://127.0.0.1/x", "https://", "https:///x"),
        *("https://desk.example", "https://me:secret@desk.example/x", "https://desk.example:99999/x", "file:///etc/x"),
        *("https://desk.example?x=1/y", "https://desk.example/a#b/y", f"https://desk.example/{'x' * 200}"),
    ],
)
def test_a_url_that_is_none_or_would_show_the_token_is_refused(office: str) -> None:
    with pytest.raises(SubletError) as refused:
        place_of(office, GivenToken("t"))
    assert refused.value.code is LocalCode.INVALID_ARGUMENT
    assert refused.value.hint


def test_each_command_is_a_server_with_an_id_of_its_own(tmp_path: Path) -> None:
    environ = {"PATH": "/usr/bin:/bin", TOKEN_VARIABLE: "secret", "KEY": "mine"}
    made = server_commands([["sh", "-c", "x"], ["sh"], ["/bin/sh"]], ["my notes"], environ, tmp_path)
    assert [(one.name, one.bundle_id) for one in made] == [("my notes", "my_notes"), ("sh", "sh"), ("sh", "sh-2")]
    assert made[0].argv == ["sh", "-c", "x"]
    assert made[0].env == {"PATH": "/usr/bin:/bin", "KEY": "mine"}
    for commands, names, code in (
        ([], [], LocalCode.INVALID_ARGUMENT),
        ([[]], [], LocalCode.INVALID_ARGUMENT),
        ([["sh"], []], [], LocalCode.INVALID_ARGUMENT),
        ([["sh"]] * 17, [], LocalCode.INVALID_ARGUMENT),
        ([["sh"]], ["a", "b"], LocalCode.INVALID_ARGUMENT),
        ([["no-such-program"]], [], LocalCode.NOT_FOUND),
    ):
        with pytest.raises(SubletError) as refused:
            server_commands(commands, names, environ, tmp_path)
        assert refused.value.code is code


async def test_a_directory_for_uploads_has_to_be_there(tmp_path: Path) -> None:
    async def nowhere() -> Place:
        raise AssertionError

    with pytest.raises(SubletError) as refused:
        await run_computer("laptop", [], nowhere, GivenToken("t"), tmp_path / "gone", lambda ready: None)
    assert refused.value.code is LocalCode.NOT_FOUND
