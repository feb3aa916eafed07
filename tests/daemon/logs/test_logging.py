from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from sublet.daemon.logs.log_limit import PER_MINUTE
from sublet.daemon.logs.logging import REDACTED, configure_logging
from support.plain_logs import log_plainly

TOKEN = "sblt_" + "x" * 43
LINK = "sublet+https://box.example:8642/#1." + "k" * 43 + ".-.tokenid12345.secretsecret.1800000000"
PEM = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n-----END OPENSSH PRIVATE KEY-----"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = before
    root.setLevel(level)
    structlog.reset_defaults()
    log_plainly()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_entries_are_json_with_time_level_and_name(stream: io.StringIO) -> None:
    configure_logging("info", stream)
    structlog.get_logger("sublet.x").info("lease opened", delegation_id="dlg_1", count=3)
    logging.getLogger("library").warning("from %s", "elsewhere")
    structlog.get_logger("sublet.x").debug("not shown")
    first, second = lines(stream)
    assert first["event"] == "lease opened"
    assert (first["delegation_id"], first["count"], first["level"], first["logger"]) == ("dlg_1", 3, "info", "sublet.x")
    assert second["event"] == "from elsewhere"
    assert "timestamp" in first
    assert "timestamp" in second


@pytest.mark.parametrize("as_json", [True, False])
def test_secrets_do_not_get_into_the_log(stream: io.StringIO, as_json: bool) -> None:
    configure_logging("info", stream, as_json=as_json)
    log = structlog.get_logger("t")
    log.info(
        "by name", token="t0psecret", Authorization="t0psecret", ssh_private_key=b"t0psecret", password="t0psecret"
    )
    log.info("nested", headers={"cookie": "t0psecret", "inner": [{"bearer-token": "t0psecret"}]})
    log.info("by looks", a=f"x {TOKEN} y", b=LINK, c=PEM, d="Authorization: Bearer abcdefghijklmnop", e=[TOKEN])
    sentence = f"in the event {TOKEN}"
    log.info(sentence)
    logging.getLogger("library").warning("called %s with %s", LINK, TOKEN)
    try:
        raise ValueError(f"failed for {TOKEN}")
    except ValueError:
        log.exception("broke")
    text = stream.getvalue()
    for secret in ("t0psecret", TOKEN, "secretsecret", "b3BlbnNz", "abcdefghijklmnop"):
        assert secret not in text
    assert text.count(REDACTED) >= 12
    assert "box.example" in text
    assert "ValueError" in text


def test_what_only_sounds_like_a_secret_stays(stream: io.StringIO) -> None:
    configure_logging("info", stream)
    structlog.get_logger("t").info("token made", token_name="ci", tokens=3, fingerprint="SHA256:abc", token=None)
    (entry,) = lines(stream)
    assert (entry["token_name"], entry["tokens"], entry["fingerprint"], entry["token"]) == ("ci", 3, "SHA256:abc", None)


def test_words_of_a_peer_cannot_forge_entries_or_steer_a_terminal(stream: io.StringIO) -> None:
    configure_logging("info", stream, as_json=False)
    structlog.get_logger("t").info("peer said", text="x\n2026-01-01 [info] forged \x1b[2J\u202e", more="y" * 100_000)
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert "\x1b[2J" not in text
    assert "\u202e" not in text
    assert len(text) < 20_000


def test_libraries_talk_less(stream: io.StringIO) -> None:
    configure_logging("info", stream)
    logging.getLogger("httpx").info("HTTP Request: GET http://x")
    logging.getLogger("asyncssh").info("connection")
    assert stream.getvalue() == ""


def test_each_place_in_the_code_writes_some_entries_a_minute(stream: io.StringIO) -> None:
    """Counted is the place of whoever logs, and not the library through which everybody does."""
    configure_logging("info", stream)
    log = structlog.get_logger("sublet.test")
    for _ in range(PER_MINUTE + 5):
        log.info("one place")
    for _ in range(PER_MINUTE + 5):
        log.info("another place")
    assert stream.getvalue().count("one place") == PER_MINUTE
    assert stream.getvalue().count("another place") == PER_MINUTE
