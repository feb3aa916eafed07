"""A person approves a call of a real agent in a real terminal, and nobody else can (DESIGN 7, 9)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nacl.signing import SigningKey

from sublet.daemon.api.approval_statements import approve_statement
from sublet.daemon.api.approvals import (
    APPROVE,
    FORGET_APPROVER,
    GET_APPROVAL,
    GET_APPROVER,
    ApproveRequest,
    ForgetApprover,
    OneApproval,
    Terms,
)
from sublet.daemon.api.operation import Nothing
from sublet.protocol.errors import SubletError
from sublet.protocol.statement_signing import sign_statement
from support.chat_process import Step, chat_stub
from support.daemons import Daemon, two_daemons, wait_for
from support.leases import ask, begin, conditions, finish, restart, view
from support.terminal import typed

pytestmark = pytest.mark.timeout(180)

SECRET = "correct horse battery"
POLICY: dict[str, object] = {
    "version": 1,
    "global": [
        {
            "id": "ask-first",
            "effect": "approval",
            "action": "tool.call",
            "subject": {"kind": "agent"},
            "resource": "shell.exec",
        }
    ],
}


def make_approver(daemon: Daemon) -> None:
    status, shown = typed(daemon, "approver", "init", answers=[("New passphrase: ", SECRET), ("Once more: ", SECRET)])
    assert status == 0, shown
    assert SECRET not in shown


def waiting(daemon: Daemon) -> dict[str, Any]:
    found = wait_for(lambda: daemon.json("approvals")["approvals"], 40, "a question")
    assert isinstance(found[0], dict)
    return found[0]


def test_a_call_waits_for_a_person_in_a_terminal_and_nobody_else_can_approve(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    once: Step = {"calls": [["shell_exec", {"command": "echo done >> out.txt"}]]}
    script: list[Step] = [once, once, {"say": "finished"}]
    with (
        chat_stub(tmp_path / "chat", script) as stub,
        two_daemons(tmp_path / "d", agent=stub.agent(), executor_policy=POLICY) as (lender, executor),
    ):
        make_approver(executor)
        delegation = begin(lender, project, "Go.")
        asked = waiting(executor)
        assert json.loads(executor.json("approvals", "show", asked["id"])["arguments"])["command"].startswith("echo")
        told = wait_for(lambda: view(lender, delegation).condition, 20, "the lender's condition")
        assert told.kind == "waiting_for_approval"
        assert asked["id"] in told.detail

        # Any program under this user reaches the control socket; without the key it opens nothing.
        approver = ask(executor, lambda client: client.call(GET_APPROVER, Nothing()))
        shown = ask(executor, lambda client: client.call(GET_APPROVAL, OneApproval(approval_id=asked["id"])))
        forged = sign_statement(approve_statement(approver.daemon, shown, Terms()), SigningKey.generate())
        with pytest.raises(SubletError, match="not signed by the approver"):
            ask(executor, lambda client: client.call(APPROVE, ApproveRequest(approval_id=shown.id, signed=forged)))
        with pytest.raises(SubletError, match="not signed"):
            ask(executor, lambda client: client.call(FORGET_APPROVER, ForgetApprover()))
        refused = executor.run("approvals", "approve", asked["id"], check=None)
        assert refused.returncode != 0
        status, shown_text = typed(
            executor, "approvals", "approve", asked["id"], answers=[("Passphrase: ", "a guess at it")]
        )
        assert (status, "PASSPHRASE_WRONG" in shown_text) == (5, True)
        assert not (project / "out.txt").exists()

        status, shown_text = typed(executor, "approvals", "approve", asked["id"], answers=[("Passphrase: ", SECRET)])
        assert status == 0, shown_text

        # The same call again is another question.
        def others() -> list[dict[str, Any]]:
            return [one for one in executor.json("approvals")["approvals"] if one["id"] != asked["id"]]

        again = wait_for(others, 40, "the second question")[0]
        assert again["digest"] == asked["digest"]
        executor.run("approvals", "deny", again["id"])
        assert finish(lender, delegation).state == "completed"
        assert (project / "out.txt").read_text() == "done\n"
        assert "denied" in stub.results()[1]
        assert "waiting_for_approval" in conditions(lender, delegation)
        [grant] = executor.json("grants", "list", "--all")["grants"]
        assert (grant["state"], grant["outcomes"]) == ("used up", ["done"])
        assert SECRET not in executor.log()


def test_D25_a_condition_is_shown_before_it_is_signed_and_holds_for_one_simple_command(tmp_path: Path) -> None:
    """A person reads for which calls the grant is before the passphrase is asked for; of others it allows none."""
    project = tmp_path / "project"
    project.mkdir()
    where = "args.command=make *"
    condition = "with any arguments where args.command is like make *"
    lines = ["make x; touch other", "make x"]
    script: list[Step] = [*({"calls": [["shell_exec", {"command": line}]]} for line in lines), {"say": "finished"}]
    (project / "Makefile").write_text("x:\n\t@echo made > x\n")
    with chat_stub(tmp_path / "chat", script) as stub:
        agent = stub.agent()
        with two_daemons(tmp_path / "d", agent=agent, executor_policy=POLICY) as (lender, executor):
            make_approver(executor)
            given = [
                "--agent",
                agent["id"],
                "--tool",
                "shell.exec",
                "--any-arguments",
                "--where",
                where,
                "--max-uses",
                "3",
            ]
            status, shown = typed(executor, "grants", "create", *given, answers=[("Passphrase: ", SECRET)])
            assert status == 0, shown
            before, _, after = shown.partition("Passphrase: ")
            for words in (before, after):
                assert f"shell.exec {condition}, 3 times, within " in " ".join(words.split())
            assert "ANY with args.command=make *" in executor.run("grants", "list").stdout

            delegation = begin(lender, project, "Go.")
            asked = waiting(executor)
            shown_call = executor.json("approvals", "show", asked["id"])["arguments"]
            assert json.loads(shown_call) == {"command": lines[0]}, "this is more than one simple command"
            for other in ("args.command=ls *", "path=src/**", where):
                widened = ["approvals", "approve", asked["id"], "--any-arguments", "--where", other]
                status, shown = typed(executor, *widened, answers=[("Passphrase: ", SECRET)])
                assert (status, "does not fit this condition" in shown) == (2, True), shown
            assert waiting(executor)["id"] == asked["id"], "no such grant was made, and nothing was decided"
            executor.run("approvals", "deny", asked["id"])
            assert finish(lender, delegation).state == "completed"
            assert not (project / "other").exists()
            assert (project / "x").read_text() == "made\n"


def test_a_grant_outlives_a_restart_and_is_for_one_use_of_one_call(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    command = {"command": "echo done >> out.txt"}
    with chat_stub(tmp_path / "chat", [{"calls": [["shell_exec", command]]}, {"say": "finished"}]) as stub:
        agent = stub.agent()
        with two_daemons(tmp_path / "d", agent=agent, executor_policy=POLICY) as (lender, executor):
            bare = ["grants", "create", "--agent", agent["id"], "--tool", "shell.exec"]
            refused = executor.json(*bare, "--args", "{}", "--any-arguments", check=None)
            assert refused["error"]["code"] == "INVALID_ARGUMENT"
            assert executor.json(*bare, check=None)["error"]["code"] == "APPROVER_MISSING"
            make_approver(executor)
            # without --args it is for a call without any, which is not the one below
            status, shown = typed(executor, *bare, "--ttl", "600", answers=[("Passphrase: ", SECRET)])
            assert (status, "shell.exec without arguments, once" in shown) == (0, True), shown
            options = ["--agent", agent["id"], "--tool", "shell.exec", "--args", json.dumps(command), "--ttl", "600"]
            status, shown = typed(executor, "grants", "create", *options, answers=[("Passphrase: ", SECRET)])
            assert status == 0, shown
            executor.kill()
            executor.wait_gone()
            restart(executor, agent)
            assert finish(lender, begin(lender, project, "Go.")).state == "completed"
            assert (project / "out.txt").read_text() == "done\n"
            states = [grant["state"] for grant in executor.json("grants", "list", "--all")["grants"]]
            assert sorted(states) == ["usable", "used up"]
            executor.run("approver", "reset", "--yes")
            assert any("without its passphrase" in remark for remark in executor.json("status")["remarks"])
