"""``relay.json``: what it may say, and what becomes of it."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from sublet.messaging.relay.settings import SETTINGS_FILE, RelaySettings, read_settings, write_settings
from sublet.protocol.errors import LocalCode, SubletError


def test_what_is_written_is_read_and_has_its_effect(tmp_path: Path) -> None:
    write_settings(tmp_path, RelaySettings(domain="relay.test", hosts=["127.0.0.1"]))
    made = read_settings(tmp_path)
    assert made == RelaySettings(domain="relay.test", hosts=["127.0.0.1"])
    assert (made.terms.is_open, made.terms.certificate_life) == (True, timedelta(hours=24))
    with pytest.raises(FileExistsError):
        write_settings(tmp_path, made)
    changed = {"registration": "closed", "certificate_hours": 0.5, "messages_per_second": 7.0, "messages_at_once": 70.0}
    changed |= {"registrations_per_minute": 6.0, "domain": "relay.test", "slots": 3}
    (tmp_path / SETTINGS_FILE).write_text(json.dumps(changed))
    other = read_settings(tmp_path)
    assert (other.terms.is_open, other.terms.certificate_life, other.slots) == (False, timedelta(minutes=30), 3)
    assert (other.rate.per_second, other.rate.burst) == (7.0, 70.0)
    assert (other.desk_rate.per_second, other.desk_rate.burst) == (0.1, 6.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"domain": "Relay Example"},
        {"domain": ".x"},
        {"domain": "x", "more": 1},
        {"domain": "x", "slots": 0},
        {"domain": "x", "slots": 1_000_000},
        {"domain": "x", "hosts": ["a b"]},
        {"domain": "x", "registration": "maybe"},
        {"domain": "x", "certificate_hours": 0},
        {"domain": "x", "messages_at_once": 1},
        [],
    ],
)
def test_what_it_may_not_say_is_named(tmp_path: Path, wrong: object) -> None:
    (tmp_path / SETTINGS_FILE).write_text(json.dumps(wrong))
    with pytest.raises(SubletError, match=SETTINGS_FILE) as refused:
        read_settings(tmp_path)
    assert refused.value.code is LocalCode.INVALID_ARGUMENT


def test_where_there_is_no_relay_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(SubletError) as refused:
        read_settings(tmp_path / "nowhere")
    assert refused.value.code is LocalCode.NOT_FOUND
    (tmp_path / SETTINGS_FILE).mkdir()
    with pytest.raises(SubletError) as refused:
        read_settings(tmp_path)
    assert refused.value.code is LocalCode.UNAVAILABLE
