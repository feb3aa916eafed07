"""`sublet device`: what it shows of devices, and links as codes that a camera reads."""

from __future__ import annotations

from io import StringIO

import pytest
import segno
from rich.console import Console

from sublet.cli.app import run
from sublet.cli.commands.rooms import devices
from sublet.cli.rendering.screen import Screen
from sublet.daemon.api.devices import DevicesView, DeviceView
from sublet.protocol.ezagent.ids import checked_entity_id
from sublet.protocol.ezagent.sealing.device_link import DeviceLink
from support.made_answers import AskedControl

LINK = "sublet-device:" + "Ab3-_" * 60


def test_the_code_holds_the_link_and_nothing_else() -> None:
    lines = devices._code(LINK)
    out = StringIO()
    segno.make(LINK, error="l", micro=False).terminal(out, border=2, compact=True)
    assert "\n".join(lines) == out.getvalue().rstrip("\n")
    assert len(lines) < 50, "it fits on a screen"
    other = devices._code(LINK + "x")
    assert other != lines


@pytest.mark.parametrize(
    ("standing", "waits_for", "told"),
    [
        ("own", None, ""),
        ("own", "@human:node-a", "waits until @human:node-a adds it"),
        ("removed", None, "was removed"),
    ],
)
def test_the_list_says_as_whom_and_how_it_stands(
    standing: str, waits_for: str | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen()
    out = StringIO()
    for name in ("out", "err"):
        monkeypatch.setattr(screen, name, Console(file=out, width=200))
    one = DeviceView(id="ab" * 16, name="", node_id="node-a", this=True)
    two = DeviceView(id="cd" * 16, name="laptop", node_id="node-b", this=False)
    view = {"entity_id": "@human:node-x", "devices": [one, two], "waits_for": waits_for, "standing": standing}
    devices._show(screen, DevicesView.model_validate(view))
    shown = out.getvalue()
    for words in ("You are @human:node-x.", "(first)", "this daemon", "laptop", "cd" * 6, "node-b", told):
        assert words in shown


@pytest.mark.parametrize("given", [(), ("--json",)])
@pytest.mark.parametrize(("said", "added"), [("y\n", True), ("n\n", False), ("", False)])
def test_who_adds_a_device_is_asked_first(
    given: tuple[str, ...], said: str, added: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = DeviceLink(checked_entity_id("@human:node-x"), b"k" * 32, b"s" * 32, b"h" * 64, "laptop").encode()
    monkeypatch.setattr("sys.stdin", StringIO(said))
    control = AskedControl()
    status = run(["device", "add", link, *given], session=control.session())
    assert (bool(control.asked), status == 0) == (added, added)
    unasked = AskedControl()
    monkeypatch.setattr("sys.stdin", StringIO(""))
    assert run(["device", "add", link, "--yes", *given], session=unasked.session()) == 0
    assert unasked.asked
