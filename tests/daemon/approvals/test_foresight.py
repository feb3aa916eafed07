"""Policy is asked ahead for the calls of a run: by the strictest of a call's names, and at each path for itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from sublet.daemon.approvals.foresight import Foresight
from sublet.daemon.approvals.run_facts import RunFacts
from sublet.policy.request_rules import NOT_NARROWED, Narrowing, narrowing
from sublet.protocol.canonical import JsonValue
from sublet.protocol.events import EventKeys
from sublet.supervisor.job import Deadline, JobResource
from sublet.supervisor.tool_gate import ToolCall
from sublet.supervisor.tools import FILE_READ, FILE_SEARCH
from support.approvals import AGENT, Desk, desk

pytestmark = pytest.mark.anyio
TOOL: dict[str, JsonValue] = {"effect": "deny", "action": "tool.call"}
NEVER: dict[str, JsonValue] = {**TOOL, "id": "never", "resource": "acp.deploy"}
ASK: dict[str, JsonValue] = {**TOOL, "id": "ask", "effect": "approval", "resource": "shell.exec"}
SECRETS: dict[str, JsonValue] = {**TOOL, "id": "secrets", "resource": "file.*", "when": {"path": {"within": "secrets"}}}
UNREAD: dict[str, JsonValue] = {**TOOL, "id": "unread", "resource": FILE_READ, "when": {"path": {"within": "drafts"}}}
HIDDEN: dict[str, JsonValue] = {**SECRETS, "id": "hidden", "resource": FILE_READ, "hide": True}


def foresight(
    side: Desk, modes: Sequence[tuple[str, Any]] = (("workspace", "rw"),), narrowed: Narrowing = NOT_NARROWED
) -> Foresight:
    return Foresight(
        side.gatekeeper,
        RunFacts(
            subject=AGENT,
            scope="dlg_1",
            resources=[JobResource(name, Path("/mnt") / name, mode) for name, mode in modes],
            keys=EventKeys(),
            deadline=Deadline(anyio.current_time() + 60),
            delegation_id="dlg_1",
            peer="bob",
            narrowing=narrowed,
        ),
    )


def called(tool: str, *also: str, perhaps: tuple[str, ...] = (), paths: tuple[str, ...] = ()) -> ToolCall:
    return ToolCall(tool, {"command": "make"}, "c1", paths, also=also, perhaps=perhaps)


async def test_a_call_of_several_names_goes_by_the_strictest(tmp_path: Path) -> None:
    async with desk(tmp_path, [NEVER, ASK]) as side:
        ahead = foresight(side)
        assert ahead.strictest(called("file.read")) == called("file.read")
        assert ahead.strictest(called("file.read", "shell.exec")) == called("shell.exec", "file.read")
        both = ahead.strictest(called("file.read", "shell.exec", "acp.deploy"))
        assert (both.tool, both.also) == ("acp.deploy", ("file.read", "shell.exec"))


async def test_a_name_that_it_may_have_counts_where_a_rule_denies_that_name(tmp_path: Path) -> None:
    async with desk(tmp_path, [NEVER]) as side:
        ahead = foresight(side)
        assert ahead.strictest(called("file.read", perhaps=("acp.deploy",))).tool == "acp.deploy"
        assert ahead.strictest(called("file.read", perhaps=("acp.other",))) == called("file.read")


async def test_a_name_that_no_rule_knows_is_none_to_decide_by_and_one_that_a_list_leaves_out_is(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        assert foresight(side).strictest(called("file.read", "acp.unknown")).tool == "file.read"
        assert foresight(side).strictest(called("file.read", "shell.exec")).tool == "file.read"
        only = foresight(side, narrowed=narrowing([], ["file.read"]))
        assert only.strictest(called("file.read", "shell.exec")).tool == "shell.exec"


@pytest.mark.parametrize(
    ("modes", "paths", "mode"),
    [
        ([("a", "rw"), ("b", "ro")], ("a/x",), "rw"),
        ([("a", "rw"), ("b", "ro")], ("a/x", "b/y"), "ro"),
        ([("a", "rw"), ("b", "ro")], (), "rw"),
        ([("a", "ro"), ("b", "ro")], (), "ro"),
        ([("a", "ro"), ("b", "rw")], ("elsewhere/x",), "rw"),
    ],
)
async def test_a_call_has_the_narrowest_access_of_what_it_touches(
    tmp_path: Path, modes: list[tuple[str, str]], paths: tuple[str, ...], mode: str
) -> None:
    async with desk(tmp_path) as side:
        resource = foresight(side, modes).resource(called("file.write", paths=paths))
        assert resource.attributes["access_mode"] == mode
        assert (resource.attributes["delegation_id"], resource.attributes["peer"]) == ("dlg_1", "bob")


async def test_a_search_tells_of_a_path_only_where_it_may_be_read(tmp_path: Path) -> None:
    async with desk(tmp_path, [SECRETS, UNREAD]) as side:
        ahead, search = foresight(side), called(FILE_SEARCH)
        assert ahead.reveals(search, "workspace/src/a")
        assert not ahead.reveals(search, "workspace/secrets/key")
        assert not ahead.reveals(search, "workspace/drafts/a"), "the search may go there, and reading may not"
        assert ahead.reveals(called("file.list"), "workspace/drafts/a")


async def test_what_a_person_has_approved_tells_of_what_it_finds(tmp_path: Path) -> None:
    async with desk(tmp_path, [{**ASK, "resource": "file.list"}]) as side:
        assert foresight(side).reveals(called("file.list"), "workspace/a")


async def test_a_path_is_concealed_where_a_rule_hides_it_from_the_tool_or_from_reading(tmp_path: Path) -> None:
    async with desk(tmp_path, [HIDDEN, UNREAD]) as side:
        ahead = foresight(side)
        assert ahead.conceals(called(FILE_READ), "workspace/secrets/key")
        assert ahead.conceals(called("file.list"), "workspace/secrets/key"), (
            "it may be listed, and reading it is hidden"
        )
        assert not ahead.conceals(called("file.list"), "workspace/drafts/a"), "denied, and no secret"


async def test_the_paths_that_are_denied_are_those_of_the_rules(tmp_path: Path) -> None:
    async with desk(tmp_path, [SECRETS]) as side:
        denies = foresight(side).path_denies()
        assert denies.unreadable("secrets/key")
        assert denies.unwritable("secrets/key")
        assert not denies.unreadable("src/a")
        assert side.audit.entries == []
