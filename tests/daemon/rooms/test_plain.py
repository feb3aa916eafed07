"""What members write and JSON can't say is shown as what it can."""

from __future__ import annotations

import json

from sublet.daemon.rooms.plain import plain


def test_all_is_json() -> None:
    given = {"a": b"\xff", "b": [float("nan"), -float("inf"), 1.5, True, None], 3: ({"c": b""},), "d": "\ud800\u00e9"}
    shown = plain(given)
    assert shown == {
        "a": {"base64": "/w=="},
        "b": [None, None, 1.5, True, None],
        "3": [{"c": {"base64": ""}}],
        "d": "?\u00e9",
    }
    json.dumps(shown, allow_nan=False).encode()
    assert plain(b"a file") == b"a file"
