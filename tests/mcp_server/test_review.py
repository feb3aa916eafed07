"""Staged results through the tools, in both protocol eras."""

from __future__ import annotations

from typing import Any

import pytest

from sublet.daemon.api.delegation_views import ChangeSet
from sublet.daemon.api.results import ApplyResult, Conflict, Review, ReviewedFile
from sublet.daemon.config.paths import Home
from sublet.protocol.errors import LocalCode, SubletError
from support.fake_daemon_api import FakeDaemonApi
from support.tool_answers import WORK, connected, same_facts, text_of

pytestmark = pytest.mark.anyio

CHANGES = ChangeSet(added=1, changed=1, lines_added=5, lines_deleted=1)
CONFLICT = Conflict(
    path="src/app.py", reason="both sides changed the same lines", yours="/srv/app/src/app.py", theirs=None
)


def review_of(delegation_id: str, **changes: object) -> Review:
    review = Review(
        delegation_id=delegation_id,
        workspace_dir="/srv/app",
        change_set=CHANGES,
        files=[
            ReviewedFile(path="new.py", change="added", lines_added=4, lines_deleted=0, outcome="clean"),
            ReviewedFile(path="src/app.py", change="changed", lines_added=1, lines_deleted=1, outcome="clean"),
        ],
        patch="--- a/src/app.py\n+++ b/src/app.py\n@@ -1 +1 @@\n-x\n+y\n",
    )
    return review.model_copy(update=changes)


async def staged(client: Any, api: FakeDaemonApi, **changes: object) -> str:
    """Return a delegation whose staged result waits for a review."""
    shown = same_facts(await client.call_tool("delegate", {**WORK, "result_mode": "staged"}))
    assert (shown["result_mode"], api.requests[-1].result_mode) == ("staged", "staged")
    found = str(shown["delegation_id"])
    await api.finish(found, change_set=CHANGES)
    api.reviews[found] = review_of(found, **changes)
    return found


async def test_the_result_says_that_nothing_is_applied_and_what_to_call(
    api: FakeDaemonApi, home: Home, mode: str
) -> None:
    async with connected(api, home, mode) as client:
        found = await staged(client, api)
        shown = same_facts(await client.call_tool("delegate_output", {"delegation_id": found}))
    assert shown["change_set"] == {
        **CHANGES.model_dump(exclude_none=True, exclude={"branch_left_out"}),
        "status": "pending",
    }
    assert "Nothing is in the directory yet" in shown["next_step"]
    assert f"delegate_review(delegation_id='{found}')" in shown["next_step"]


async def test_a_result_is_looked_at_applied_and_taken_back(api: FakeDaemonApi, home: Home, mode: str) -> None:
    async with connected(api, home, mode) as client:
        found = await staged(client, api)
        diff = same_facts(await client.call_tool("delegate_review", {"delegation_id": found}))
        assert (diff["action"], diff["conflicts"], diff["more"]) == ("diff", 0, False)
        assert diff["from_peer"]["text"] == api.reviews[found].patch
        assert "action='apply'" in diff["next_step"]
        assert api.applies == []

        done = same_facts(await client.call_tool("delegate_review", {"delegation_id": found, "action": "apply"}))
        assert (done["change_set"]["status"], done["files_done"]) == ("applied", 2)
        assert done["from_peer"]["done"] == ["new.py", "src/app.py"]
        assert "action='undo'" in done["next_step"]

        back = same_facts(await client.call_tool("delegate_review", {"delegation_id": found, "action": "undo"}))
        assert (back["change_set"]["status"], back["files_done"]) == ("undone", 2)
    assert api.applies == [ApplyResult(delegation_id=found)]
    assert all(caller.kind == "mcp" for caller in api.callers)


async def test_a_result_is_dropped(api: FakeDaemonApi, home: Home, mode: str) -> None:
    async with connected(api, home, mode) as client:
        found = await staged(client, api)
        gone = same_facts(await client.call_tool("delegate_review", {"delegation_id": found, "action": "discard"}))
    assert gone["change_set"]["status"] == "discarded"
    assert "closed" in gone["next_step"]


async def test_conflicts_are_told_with_both_versions(api: FakeDaemonApi, home: Home, mode: str) -> None:
    async with connected(api, home, mode) as client:
        found = await staged(client, api, conflicts=[CONFLICT], unread=["locked"])
        diff = same_facts(await client.call_tool("delegate_review", {"delegation_id": found}))
        assert diff["conflicts"] == 1
        assert diff["from_peer"]["conflicts"] == [
            "src/app.py: both sides changed the same lines (yours: /srv/app/src/app.py; theirs: none)"
        ]
        assert diff["from_peer"]["unread"] == ["locked"]
        assert "partial=true" in diff["next_step"]

        refused = same_facts(await client.call_tool("delegate_review", {"delegation_id": found, "action": "apply"}))
        assert (refused["files_done"], refused["conflicts"]) == (0, 1)
        assert refused["change_set"]["status"] == "pending"
        given = {"delegation_id": found, "action": "apply", "partial": True}
        part = same_facts(await client.call_tool("delegate_review", given))
        assert part["change_set"]["status"] == "partly_applied"
    assert api.applies == [ApplyResult(delegation_id=found), ApplyResult(delegation_id=found, partial=True)]


async def test_a_long_patch_comes_in_pages_without_loss(api: FakeDaemonApi, home: Home, mode: str) -> None:
    patch = "".join(f'+line {n} "quoted" \\ and\ttabbed\n' for n in range(1_000))
    async with connected(api, home, mode) as client:
        found = await staged(client, api, patch=patch, patch_truncated=True, conflicts=[CONFLICT] * 100)
        read, cursor, pages, more = "", "0", 0, True
        while more:
            page = same_facts(await client.call_tool("delegate_review", {"delegation_id": found, "cursor": cursor}))
            assert (page["patch_truncated"], page["shortened"], page["conflicts"]) == (True, True, 100)
            read += page["from_peer"]["text"]
            cursor, more, pages = page["next_cursor"], page["more"], pages + 1
        assert read == patch
        assert pages < 20
        beyond = same_facts(await client.call_tool("delegate_review", {"delegation_id": found, "cursor": 10**9}))
        assert (beyond["more"], beyond["from_peer"].get("text")) == (False, None)


async def test_a_patch_goes_on_after_its_cursor(api: FakeDaemonApi, home: Home) -> None:
    patch = "".join(f"+line {number}\n" for number in range(3_000))
    async with connected(api, home) as client:
        found = await staged(client, api, patch=patch)
        first = same_facts(await client.call_tool("delegate_review", {"delegation_id": found}))
        given = {"delegation_id": found, "cursor": first["next_cursor"]}
        second = same_facts(await client.call_tool("delegate_review", given))
    assert patch.startswith(first["from_peer"]["text"] + second["from_peer"]["text"])


async def test_only_a_person_may_let_most_of_a_directory_go(api: FakeDaemonApi, home: Home) -> None:
    async with connected(api, home, "auto") as client:
        found = await staged(client, api, mass_deletion=True)
        diff = same_facts(await client.call_tool("delegate_review", {"delegation_id": found}))
        assert diff["mass_deletion"] is True
        assert f"sublet apply {found} --allow-mass-deletion" in diff["next_step"]
        wrong = {"delegation_id": found, "action": "apply", "allow_mass_deletion": True}
        assert "no argument 'allow_mass_deletion'" in text_of(await client.call_tool("delegate_review", wrong))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"delegation_id": "../x"}, "delegation_id"),
        ({"delegation_id": "dlg_1", "action": "merge"}, "'diff', 'apply', 'discard' or 'undo'"),
        ({"delegation_id": "dlg_1", "cursor": "x"}, "cursor"),
        ({}, "'delegation_id' is missing"),
    ],
)
async def test_wrong_arguments_are_named(api: FakeDaemonApi, home: Home, given: dict[str, Any], words: str) -> None:
    async with connected(api, home, "auto") as client:
        result = await client.call_tool("delegate_review", given)
    assert result.is_error
    assert words in text_of(result)


async def test_what_the_daemon_refuses_is_said_with_its_code(api: FakeDaemonApi, home: Home, mode: str) -> None:
    async with connected(api, home, mode) as client:
        found = await staged(client, api)
        api.breaks = SubletError(LocalCode.CONFLICT, "another lease holds this directory", "Wait for it to end.")
        result = await client.call_tool("delegate_review", {"delegation_id": found, "action": "apply"})
    assert text_of(result).startswith("CONFLICT: another lease holds this directory")
