"""What peers say becomes a failure of ours that keeps whose words they are."""

from __future__ import annotations

from sublet.daemon.records import error_view
from sublet.daemon.reports import refusal
from sublet.protocol.errors import ErrorCode
from sublet.protocol.messages import Error, ErrorExtension


def test_a_peers_error_keeps_its_code_its_words_and_when_to_try_again() -> None:
    said = Error(
        delegation_id="dlg_1",
        code=ErrorCode.DECLINED,
        message="all slots\x1b[2J are\ntaken",
        hint="Wait.",
        sublet=ErrorExtension(retry_after_seconds=30),
    )

    shown = error_view(refusal(said, "bob"))

    assert (shown.code, shown.message, shown.hint) == ("DECLINED", "bob: all slots are taken", "Wait.")
    assert shown.from_peer
    assert shown.retry_after_seconds == 30
