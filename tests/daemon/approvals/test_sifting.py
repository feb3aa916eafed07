"""What policy denies to read is left out of listings and searches: real tools and files at a real gate (DESIGN 7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from sublet.protocol.canonical import JsonValue
from sublet.supervisor import tools
from sublet.supervisor.chat.calls import Calls
from sublet.supervisor.chat.file_tools import FileTools
from sublet.supervisor.chat.reply import RawCall
from sublet.supervisor.tool_gate import ToolCall
from sublet.workspace.lease_files import MountedFiles
from support.approvals import desk
from support.jobs import job

pytestmark = pytest.mark.anyio

SECRET = "TOKEN=hunter2"
FILES = {".env": SECRET, "a/.env": SECRET, "a/plain.txt": f"{SECRET} is no secret here", "b/.ENV": "token", "b/c": "d"}


def deny(resource: str, like: str) -> dict[str, JsonValue]:
    return {
        "id": "keys",
        "effect": "deny",
        "action": "tool.call",
        "subject": {"kind": "agent"},
        "resource": resource,
        "when": {"path": {"like": like}},
    }


@pytest.fixture
def lent(tmp_path: Path) -> Path:
    root = tmp_path / "lent"
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


async def made(tmp_path: Path, lent: Path, rule: dict[str, JsonValue], tool: str, arguments: str) -> str:
    """Have a model's call made, and return what the model is told."""
    files = MountedFiles({"workspace": (lent, "rw")})
    async with desk(tmp_path, [rule]) as side:
        gate = side.gate()
        offered = FileTools(job(tmp_path, "Go."), files, gate).tools()
        try:
            return await Calls(offered, gate, lambda _: None).make(RawCall("c1", tool, arguments))
        finally:
            await files.aclose()


@pytest.mark.parametrize("resource", ["file.*", "*", "file.read", "file.search"])
async def test_a_search_from_above_leaves_out_what_can_not_be_read(tmp_path: Path, lent: Path, resource: str) -> None:
    found = await made(tmp_path, lent, deny(resource, "**/.env"), "file_search", '{"text": "TOKEN"}')
    assert found.splitlines() == [
        "a/plain.txt:1:TOKEN=hunter2 is no secret here",
        "[Left out: 2 files that policy denies.]",
    ]


@pytest.mark.parametrize("text", ["hunter2", "no such thing"])
async def test_how_many_are_left_out_does_not_tell_what_is_in_them(tmp_path: Path, lent: Path, text: str) -> None:
    arguments = f'{{"text": "{text}", "name": ".env"}}'
    found = await made(tmp_path, lent, deny("file.*", "**/.env"), "file_search", arguments)
    assert found == "[Nothing found in 0 files.]\n[Left out: 2 files that policy denies.]"


@pytest.mark.parametrize("arguments", ['{"path": ".env", "text": "T"}', '{"path": "a/./.env", "text": "T"}'])
async def test_what_is_denied_is_not_searched_by_its_name(tmp_path: Path, lent: Path, arguments: str) -> None:
    refused = await made(tmp_path, lent, deny("file.*", "**/.env"), "file_search", arguments)
    assert refused.startswith("Refused by policy")


async def test_a_directory_that_is_denied_has_nothing_to_find_below_it(tmp_path: Path, lent: Path) -> None:
    found = await made(tmp_path, lent, deny("file.*", "a/**"), "file_search", "{}")
    assert found.splitlines() == [".env", "b/.ENV", "b/c", "[Left out: 2 files that policy denies.]"]


async def test_a_listing_leaves_out_what_may_not_be_listed(tmp_path: Path, lent: Path) -> None:
    listed = await made(tmp_path, lent, deny("file.*", "**/.env"), "file_list", "{}")
    assert listed.splitlines() == ["a/", "b/", "[Left out: 1 entries that policy denies.]"]
    (tmp_path / "again").mkdir()
    listed = await made(tmp_path / "again", lent, deny("file.read", "**/.env"), "file_list", "{}")
    assert ".env  13" in listed.splitlines(), "to see a name is not to read the file"


async def test_a_move_of_what_holds_something_denied_is_refused(tmp_path: Path, lent: Path) -> None:
    refused = await made(tmp_path, lent, deny("file.*", "**/.env"), "file_move", '{"path": "a", "to": "z"}')
    assert refused.startswith("Refused by policy")


async def test_a_tool_that_does_not_sift_is_refused_from_above(tmp_path: Path, lent: Path) -> None:
    """Such as the search of an agent with tools of its own."""
    async with desk(tmp_path, [deny("file.*", "**/.env")]) as side:
        call = ToolCall(tools.FILE_SEARCH, {"pattern": "TOKEN"}, "c1", ("workspace",))
        assert not (await side.gate().ask(call)).allowed
