"""The executor's daemon is killed around the use of a grant, held at that very write (SuperAgent 6.2)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from nacl.signing import SigningKey

from sublet.daemon.api.approval_statements import approve_statement, issue_statement
from sublet.daemon.api.approvals import (
    APPROVE,
    DENY_APPROVAL,
    GET_APPROVAL,
    GET_APPROVER,
    ISSUE_GRANT,
    LIST_APPROVALS,
    LIST_GRANTS,
    SET_APPROVER,
    ApprovalView,
    ApproveRequest,
    DenyApproval,
    GrantView,
    IssueGrant,
    ListApprovals,
    ListGrants,
    OneApproval,
    Terms,
)
from sublet.daemon.api.events import READ_EVENTS, ReadEvents
from sublet.daemon.api.operation import Nothing
from sublet.daemon.approvals.grant_store import UNKNOWN_OUTCOME
from sublet.protocol.errors import SubletError
from sublet.protocol.events import Event
from sublet.protocol.statement_signing import sign_statement
from support.approvals import setting
from support.chat_process import Step, chat_stub
from support.crashes import SITE
from support.daemons import Daemon, two_daemons, wait_for
from support.leases import ask, begin, finish, restart

pytestmark = pytest.mark.timeout(180)

COMMAND = {"command": "echo done >> out.txt"}
CALL: Step = {"calls": [["shell_exec", COMMAND]]}
END: Step = {"say": "finished"}
POLICY: dict[str, object] = {
    "version": 1,
    "global": [{"id": "ask-first", "effect": "approval", "action": "tool.call", "resource": "shell.exec"}],
}


@dataclass
class Scene:
    """Two daemons, the second of which can be held at a write, and its approver's key."""

    lender: Daemon
    executor: Daemon
    agent: dict[str, Any]
    plan: Path
    key: SigningKey
    daemon: str
    plans: int = 0

    def hold(self, label: str, when: str) -> None:
        """Have the executor's daemon stand still at its next write of this label."""
        self.plans += 1
        draft = self.plan.with_suffix(".new")
        draft.write_text(json.dumps({"number": self.plans, "stop_at": -1, "label": label, "when": when}))
        self.plan.with_suffix(".go").unlink(missing_ok=True)
        draft.rename(self.plan)

    def kill(self) -> None:
        """Kill it where it stands, and start it again."""
        reached = self.plan.with_suffix(".reached")
        wait_for(reached.exists, 40, "the write")
        self.executor.kill()
        self.executor.wait_gone()
        self.plan.unlink()
        for suffix in (".reached", ".labels"):
            self.plan.with_suffix(suffix).unlink(missing_ok=True)
        restart(self.executor, self.agent)

    def grant(self) -> str:
        """Issue a grant for one use of the call, as a person does."""
        request = IssueGrant(agent=self.agent["id"], tool="shell.exec", arguments=dict(COMMAND))
        signed = sign_statement(issue_statement(self.daemon, request), self.key)
        made = ask(self.executor, lambda c: c.call(ISSUE_GRANT, request.model_copy(update={"signed": signed})))
        return made.id

    def found(self, grant: str) -> GrantView:
        return next(
            one for one in ask(self.executor, lambda client: client.call(LIST_GRANTS, ListGrants())) if one.id == grant
        )

    def question(self) -> ApprovalView:
        """Return what waits, once an agent waits for it."""

        def look() -> ApprovalView | None:
            waiting = ask(self.executor, lambda client: client.call(LIST_APPROVALS, ListApprovals()))
            return next((one for one in waiting if one.waits), None)

        found: ApprovalView = wait_for(look, 40, "a question")
        return found

    def approve(self, asked: ApprovalView) -> None:
        signed = sign_statement(approve_statement(self.daemon, asked, Terms()), self.key)
        with suppress(SubletError, OSError):  # it is killed while it answers
            ask(self.executor, lambda client: client.call(APPROVE, ApproveRequest(approval_id=asked.id, signed=signed)))

    def deny(self) -> None:
        asked = self.question()
        ask(self.executor, lambda client: client.call(DENY_APPROVAL, DenyApproval(approval_id=asked.id)))

    def told(self) -> list[Event]:
        return ask(self.executor, lambda client: client.call(READ_EVENTS, ReadEvents(cursor=0, limit=500))).events


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    base = tmp_path_factory.mktemp("g")
    plan = base / "plan"
    environ = {"PYTHONPATH": str(SITE), "SUBLET_STOP_AT": str(plan)}
    # One run each that is cut off, and one after it; a killed run takes one step.
    script = [CALL, CALL, END, CALL, CALL, END, CALL, CALL, END]
    with (
        chat_stub(base / "chat", script) as stub,
        # Both read the plan, and only the executor's writes have the labels.
        two_daemons(base / "d", agent=stub.agent(), executor_policy=POLICY, environ=environ) as (lender, executor),
    ):
        key = SigningKey.generate()
        daemon = ask(executor, lambda client: client.call(GET_APPROVER, Nothing())).daemon
        ask(executor, lambda client: client.call(SET_APPROVER, setting(key, key, daemon)))
        yield Scene(lender, executor, stub.agent(), plan, key, daemon)


def project(base: Path, name: str) -> Path:
    path = base / name
    path.mkdir()
    return path


def test_killed_before_the_use_is_written_the_grant_is_whole_and_then_used_once(scene: Scene, tmp_path: Path) -> None:
    grant = scene.grant()
    scene.hold("grants:update", "before")
    first = begin(scene.lender, project(tmp_path, "first"), "Go.")
    scene.kill()
    assert finish(scene.lender, first).state == "error"
    assert list((tmp_path / "first").iterdir()) == []
    assert (scene.found(grant).state, scene.found(grant).outcomes) == ("usable", [])

    assert finish(scene.lender, begin(scene.lender, project(tmp_path, "again"), "Go.")).state == "completed"
    assert (tmp_path / "again" / "out.txt").read_text() == "done\n"
    assert (scene.found(grant).state, scene.found(grant).outcomes) == ("used up", ["done"])


def test_killed_between_use_and_effect_it_is_used_up_unknown_and_never_used_again(scene: Scene, tmp_path: Path) -> None:
    grant = scene.grant()
    scene.hold("grants:update", "after")
    first = begin(scene.lender, project(tmp_path, "first"), "Go.")
    scene.kill()
    assert finish(scene.lender, first).state == "error"
    assert list((tmp_path / "first").iterdir()) == []
    assert (scene.found(grant).state, scene.found(grant).outcomes) == ("used up", [UNKNOWN_OUTCOME])
    called = next(one for one in scene.told() if one.kind == "tool_call" and one.data.get("grantId") == grant)
    [end] = [one for one in scene.told() if one.keys.causation_id == called.seq]
    assert (end.kind, end.data["error"]) == ("tool_error", UNKNOWN_OUTCOME)

    second = begin(scene.lender, project(tmp_path, "again"), "Go.")
    scene.deny()
    finish(scene.lender, second)
    assert list((tmp_path / "again").iterdir()) == []


def test_killed_between_approval_and_wake_up_nothing_was_done_and_nothing_is_lost(scene: Scene, tmp_path: Path) -> None:
    first = begin(scene.lender, project(tmp_path, "first"), "Go.")
    asked = scene.question()
    scene.hold("approvals:update", "after")
    approving = threading.Thread(target=scene.approve, args=(asked,))
    approving.start()
    scene.kill()
    approving.join(40)
    assert finish(scene.lender, first).state == "error"
    assert list((tmp_path / "first").iterdir()) == []
    decided = ask(scene.executor, lambda client: client.call(GET_APPROVAL, OneApproval(approval_id=asked.id)))
    assert decided.state == "approved"
    grants = ask(scene.executor, lambda client: client.call(LIST_GRANTS, ListGrants()))
    [grant] = [one for one in grants if one.approval_id == asked.id]
    assert (grant.state, grant.remaining_uses, grant.outcomes) == ("usable", 1, [])

    # It was approved for the work that is over, and for no other.
    second = begin(scene.lender, project(tmp_path, "again"), "Go.")
    scene.deny()
    finish(scene.lender, second)
    assert list((tmp_path / "again").iterdir()) == []
