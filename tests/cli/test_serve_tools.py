"""``sublet office serve-tools`` as it is typed: what it is given, and what it refuses."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sublet.app.computer import TOKEN_VARIABLE, GivenToken
from sublet.cli.app import run
from sublet.cli.commands.offices import serve_tools
from sublet.daemon.api.offices import OfficeList, OfficeView
from sublet.office_client.link import Place
from sublet.protocol.errors import LocalCode, SubletError

pytestmark = pytest.mark.anyio

OFFICE = OfficeView(office_id="an-id", name="desk", created_at="2026-01-01T00:00:00Z", members=[])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("desk", "--", "sh"), "that is no token of an office"),
        (("http://192.0.2.1/x", "--name", "a", "--token-file", "-", "--", "sh"), "over the network as it is"),
        (("http://127.0.0.1:1/x", "--token-file", "-", "--", "sh"), "does not say for whom"),
        (("desk", "--name", "a", "--token-file", "-", "--", "no-such-program"), "there is no program"),
        (("desk", "--name", "a", "--token-file", "-", "--", "sh", "---"), "there is no MCP server to start"),
        (("desk", "--name", "a", "--token-file", "/nowhere/file", "--", "sh"), "can't be read"),
    ],
)
def test_what_it_can_not_use_is_refused_in_words(
    words: tuple[str, ...], code: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO("sblt_not_shown\n"))
    assert run(["office", "serve-tools", *words]) == (1 if "no program" in code else 2)
    told = capsys.readouterr().err
    assert code in " ".join(told.split())
    assert "sblt_not_shown" not in told


def test_a_token_is_read_from_where_it_was_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "of-the-environment")
    monkeypatch.setattr("sys.stdin", io.StringIO("of-stdin"))
    (tmp_path / "file").write_text("of-a-file")
    given = [serve_tools._given(one) for one in (None, "-", str(tmp_path / "file"))]
    assert given == ["of-the-environment", "of-stdin", "of-a-file"]


def test_commands_stand_between_dashes() -> None:
    assert serve_tools._split(["a", "--", "b", "---", "c"]) == [["a", "--", "b"], ["c"]]


async def test_an_office_of_this_machine_is_asked_for_by_name_or_id() -> None:
    known = [OfficeList(offices=[OFFICE], url="http://127.0.0.1:1"), OfficeList(offices=[OFFICE])]

    async def call(*_: object) -> OfficeList:
        return known[0]

    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        yield SimpleNamespace(call=call)

    reach = cast("Any", connect)
    for name in ("desk", "an-id"):
        assert await serve_tools._here(reach, name, GivenToken("t")) == Place("http://127.0.0.1:1", "an-id", None)
    with pytest.raises(SubletError) as refused:
        await serve_tools._here(reach, "other", GivenToken("t"))
    assert refused.value.code is LocalCode.NOT_FOUND
    del known[0]
    with pytest.raises(SubletError) as refused:
        await serve_tools._here(reach, "desk", GivenToken("t"))
    assert refused.value.code is LocalCode.UNAVAILABLE
