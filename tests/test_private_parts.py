"""What leans on private parts of a library: all of it is listed, and works, or refuses with words, without the part."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import anyio
import asyncssh
import pytest
from starlette.applications import Starlette

from sublet.daemon.config.paths import Home
from sublet.daemon.health import diagnosis, private_parts, stalls
from sublet.daemon.net import uvicorn_parts
from sublet.daemon.net.http_connection import DeadlineProtocol
from sublet.daemon.net.http_server import server_config
from sublet.protocol import re2_engine
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.patterns import BadPattern, Pattern, glob
from sublet.workspace.serving import input_feed
from sublet.workspace.ssh import channel_session, inner
from sublet.workspace.ssh import tuning as ssh_tuning
from support.private_uses import private_uses
from support.sftp_client import lender

DOCUMENT = Path(__file__).parents[1] / "docs" / "dependencies.md"


def table() -> dict[tuple[str, str], str]:
    """Return each private part that the document lists: by module and name, what it says of doing without it."""
    section = DOCUMENT.read_text(encoding="utf-8").partition("## Private parts")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    return {
        (module, name): row[3] for row in rows for module in re.findall("`([^`]+)`", row[2]) for name in names_in(row)
    }


def names_in(row: list[str]) -> list[str]:
    return re.findall("`([^`]+)`", row[1])


async def checked(tmp_path: Path) -> tuple[bool, str]:
    """Return what ``sublet doctor`` says of the libraries."""
    place = str(tmp_path)
    home = Home(root=place, config_dir=place, state_dir=place, runtime_dir=place, temporary=False)
    checks = await diagnosis.diagnose(home, {}, running=False)
    (check,) = [check for check in checks if check.name == "libraries"]
    return check.ok, check.detail


def test_every_private_part_is_in_the_document() -> None:
    assert private_uses() == set(table())


def test_the_finder_finds_each_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "import asyncssh.channel\nfrom h11 import _state\nfrom typing import Protocol\n"
        "class Parts(Protocol):\n    _declared: int\n"
        "class Own:\n    __slots__ = ('_slot',)\n    def _method(self): self._set = self._inherited\n"
        "def use(thing): return thing._read, thing._slot, thing._set, thing._method, getattr(thing, '_text', None)\n"
        "NAMES = ('_one', '_two')\n"
    )
    (tmp_path / "made.py").write_text(text)
    monkeypatch.setattr("support.private_uses.SRC", tmp_path)
    names = {"asyncssh.channel", "h11._state", "_declared", "_inherited", "_read", "_text", "_one", "_two"}
    assert private_uses() == {("made", name) for name in names}


@pytest.mark.anyio
async def test_this_machine_lacks_nothing(tmp_path: Path) -> None:
    """Here the versions are those of the lock; with the newest ones, what is lacking has to be harmless."""
    ok, detail = await checked(tmp_path)
    assert ok, detail


PATTERNS: list[tuple[Any, Any]] = [
    (r"(?P<word>\pL+)(-(\d+))?", "é-12 ab-3, ü\ud800x"),
    (r"^a$", "a\nb\na"),
    (r"\Aab*\Z", "abbb"),
    (r"", "éé"),
    (rb"[\x80-\xff]+", b"a\xff\xfeb\x80"),
    (r"x*", "axxb"),
]


def told(pattern: Pattern[Any], text: Any) -> list[Any]:
    whole = [pattern.match(text), pattern.search(text), pattern.fullmatch(text)]
    found = [*(one for one in whole if one is not None), *pattern.finditer(text)]
    spans = [(one.start(), one.end(), one.group(), one.groups(), pattern.groups) for one in found]
    return [
        [one is None for one in whole],
        spans,
        pattern.findall(text),
        pattern.split(text),
        pattern.sub(text[:0], text),
    ]


@pytest.fixture
def without_inner_re2(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(re2_engine, "PARTS", (*re2_engine.PARTS, "Gone"))
    re2_engine.anchors.cache_clear()
    yield
    monkeypatch.undo()
    re2_engine.anchors.cache_clear()


@pytest.mark.parametrize(("source", "text"), PATTERNS)
def test_patterns_match_the_same_without_the_inner_call(source: Any, text: Any, request: pytest.FixtureRequest) -> None:
    expected = [told(Pattern(source, lines=lines, static=False), text) for lines in (False, True)]
    request.getfixturevalue("without_inner_re2")
    assert [told(Pattern(source, lines=lines, static=False), text) for lines in (False, True)] == expected


@pytest.mark.usefixtures("without_inner_re2")
@pytest.mark.anyio
async def test_doctor_tells_that_patterns_take_longer(tmp_path: Path) -> None:
    assert glob("a[!b]*é").match("acxé")
    with pytest.raises(BadPattern, match="can't be used"):
        Pattern("(", static=False).check()
    ok, detail = await checked(tmp_path)
    assert ok
    assert "_re2.RE2.Gone: patterns take longer" in detail


@pytest.mark.anyio
async def test_a_directory_is_lent_without_the_inner_parts_of_asyncssh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_tuning, "TUNED_VERSION", "0")
    monkeypatch.setattr(input_feed, "transport_of", lambda _: None)
    # What each of them says where its part is not there.
    for name in ("deferred_packets", "global_requests"):
        monkeypatch.setattr(inner, name, lambda _: 0)
    for name in ("unread_pieces", "channel_requests"):
        assert getattr(inner, name)(object()) == 0
        monkeypatch.setattr(channel_session, name, lambda _: 0)
    (tmp_path / "file").write_bytes(bytes(range(256)) * 4096)
    async with (
        lender(tmp_path) as lent,
        lent.connect() as connection,
        connection.start_sftp_client() as sftp,
        sftp.open("/workspace/file", "rb") as file,
    ):
        assert cast(bytes, await file.read()) == (tmp_path / "file").read_bytes()


@pytest.mark.anyio
async def test_doctor_fails_where_bounds_are_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner, "CHANNEL_PARTS", ("_gone",))
    monkeypatch.setattr(ssh_tuning, "TUNED_VERSION", "0")
    ok, detail = await checked(tmp_path)
    assert not ok
    assert f"asyncssh {asyncssh.__version__} lacks _gone: some bounds" in detail
    assert "lacks version 0: transfers are slower" in detail


@pytest.mark.anyio
async def test_no_server_starts_without_its_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_parts, "CONNECTION_PARTS", ("conn", "gone"))
    with pytest.raises(SubletError, match=r"uvicorn .* lacks what bounds our connections: H11Protocol.gone") as no:
        server_config(Starlette(), DeadlineProtocol, connections=1, head_bytes=1, drain_seconds=1)
    assert no.value.code is LocalCode.UNAVAILABLE
    assert (await checked(tmp_path))[0] is False


@pytest.mark.anyio
async def test_stalls_are_not_measured_on_another_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "SELECTOR", "_gone")
    measured = stalls.Stalls()
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(measured.serve())
        await anyio.lowlevel.checkpoint()
        assert not serving.done()
        serving.cancel()
    ok, detail = await checked(tmp_path)
    assert ok
    assert "the event loop's _gone" in detail


@pytest.mark.parametrize("module", ["_json", "_socket"])
def test_the_relay_starts_without_the_inner_modules(module: str) -> None:
    code = (
        f"import json, socket, sys; sys.modules[{module!r}] = None\n"
        "from sublet.mcp_server import relay, relay_session\n"
        "print(relay.socket.__name__, relay_session.parse(b'{\"a\": 1}'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "socket {'a': 1}"


@pytest.mark.anyio
async def test_doctor_tells_what_the_relay_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "_json", None)
    ok, detail = await checked(tmp_path)
    assert ok
    assert "python lacks _json.make_scanner, _json.encode_basestring_ascii: `sublet mcp` starts more slowly" in detail


def test_each_library_says_what_is_lost() -> None:
    assert {part.package for part in private_parts.ALL} == {"asyncssh", "google-re2", "uvicorn", "python"}
