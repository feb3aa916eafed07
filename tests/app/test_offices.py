"""Offices are served with TLS where others can reach them, and not at all without it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sublet.app.offices import OfficePlace, _Serving
from sublet.office_server import face as module
from sublet.office_server.face import OfficeContext, OfficeFace
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.offices.version import parse_version

pytestmark = pytest.mark.anyio

ELSEWHERE = "192.0.2.1"


class Face:
    """Keeps what it was made of, and listens nowhere."""

    address = "https://192.0.2.1:1"

    def __init__(self, context: OfficeContext) -> None:
        self.context = context
        made.append(context)

    async def start(self) -> None:
        return

    async def serve(self) -> None:
        return

    def release(self) -> None:
        return


made: list[OfficeContext] = []


async def opened() -> None:
    return


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", ELSEWHERE])
async def test_beyond_this_machine_there_is_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setattr(module, "OfficeFace", Face)
    made.clear()
    listen = SimpleNamespace(host=host, free_port=lambda last: 0)
    ground = SimpleNamespace(config=SimpleNamespace(offices=listen, office_protocol="0.4.0"), state_dir=tmp_path)
    store = SimpleNamespace(wait=opened)
    serving = _Serving(*cast("tuple[Any, Any, Any, Any]", (ground, store, None, None)), OfficePlace())
    await serving.serve()
    (context,) = made
    if host != ELSEWHERE:
        assert context.tls is None
        assert serving.certificate() is None
        return
    assert context.tls is not None
    assert serving.certificate() == context.tls[0].read_text()


async def test_beyond_this_machine_nothing_is_served_without_tls() -> None:
    face = OfficeFace(
        OfficeContext(cast("Any", None), cast("Any", None), ELSEWHERE, ELSEWHERE, 0, parse_version("0.4.0"), None)
    )
    with pytest.raises(SubletError, match="without TLS") as refused:
        await face.start()
    assert refused.value.code is LocalCode.INVALID_ARGUMENT
    assert refused.value.hint
    face.release()
