"""The wire of offices: versions, requests and frames."""

from __future__ import annotations

import pytest

from sublet.protocol.canonical import JsonValue
from sublet.protocol.offices.frames import BadFrame, Frame, Kind, read_frame
from sublet.protocol.offices.names import ClientEvent
from sublet.protocol.offices.requests import MAX_CALL_SECONDS, MalformedRequest, read_relayed
from sublet.protocol.offices.version import handshake_refusal, parse_version


@pytest.mark.parametrize(
    ("server", "client", "fits"),
    [
        ("0.4.0", "0.4.0", True),
        ("0.4.0", "0.4.7", True),
        ("0.4.3", "0.3.9", False),
        ("0.4.0", "0.5.0", False),
        ("1.2.0", "1.1.9", True),
        ("1.2.0", "1.3.0", False),
        ("1.2.0", "2.0.0", False),
        ("1.2.0", "0.2.0", False),
    ],
)
def test_which_versions_fit(server: str, client: str, fits: bool) -> None:
    refusal = handshake_refusal([client], parse_version(server))
    assert (refusal is None) == fits
    if refusal is not None:
        assert refusal["code"] == 4008
        assert refusal["server_version"] == server
        assert refusal["client_version"] == client


def test_a_refusal_names_what_is_supported() -> None:
    refusal = handshake_refusal(["0.3.0"], parse_version("0.4.0"))
    assert refusal == {
        "code": 4008,
        "message": "Protocol version mismatch",
        "server_version": "0.4.0",
        "client_version": "0.3.0",
        "min_supported": "0.4.0",
        "max_supported": "0.4.999",
    }
    assert parse_version("1.2.3").oldest == "1.0.0"


@pytest.mark.parametrize("given", [[], [""], ["x"], ["0.4"], ["0.4.0", "0.4.0"], ["00.4.0"], ["0.4.0\n"], ["-1.0.0"]])
def test_a_version_that_is_none_is_told(given: list[str]) -> None:
    refusal = handshake_refusal(given, parse_version("0.4.0"))
    assert refusal is not None
    assert refusal["code"] == 400


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ("2probe", Frame(Kind.TRANSPORT)),
        ("3", Frame(Kind.TRANSPORT)),
        ("5", Frame(Kind.TRANSPORT)),
        ('40/smcp,{"token":"x"}', Frame(Kind.CONNECT)),
        ("41/smcp,", Frame(Kind.DISCONNECT)),
        ("41/smcp", Frame(Kind.DISCONNECT)),
        ('42/smcp,7["x"]', Frame(Kind.EVENT, 7)),
        ('42/smcp,["x"]', Frame(Kind.EVENT)),
        ("43/smcp,12[{}]", Frame(Kind.ACK, 12)),
    ],
)
def test_frames_of_clients(text: str, frame: Frame) -> None:
    assert read_frame(text) == frame


@pytest.mark.parametrize("text", ["", "0", "6", "40", "40{}", "45/smcp,", "44/smcp,", "42/other,1[]", "2x", "b4", "4"])
def test_frames_of_nobody(text: str) -> None:
    with pytest.raises(BadFrame):
        read_frame(text)


def test_a_call_may_take_a_part_of_a_second_and_no_more_than_the_bound() -> None:
    data: dict[str, JsonValue] = {"agent": "a", "req_id": "r", "computer": "c", "tool_name": "t", "params": {}}
    for given, seconds in ((2.5, 2.5), (10**9, MAX_CALL_SECONDS), (1, 1.0)):
        assert read_relayed(ClientEvent.TOOL_CALL, [{**data, "timeout": given}]).seconds == seconds
    with pytest.raises(MalformedRequest):
        read_relayed(ClientEvent.TOOL_CALL, [{**data, "timeout": -1}])
