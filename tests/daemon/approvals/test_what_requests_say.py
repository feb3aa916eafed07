"""Every field of a request about approvals and grants, and of what a person signs, holds as it was said."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from sublet.daemon.api.approval_statements import issue_statement
from sublet.daemon.api.approvals import (
    ForgetApprover,
    IssueGrant,
    ListApprovals,
    ListGrants,
    OneGrant,
    PassphraseApproval,
    Terms,
)
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.statement_signing import sign_statement
from sublet.protocol.statements import Statement
from support.approvals import APPROVAL, DAEMON, HUMAN, PASSPHRASE, call, desk

pytestmark = pytest.mark.anyio


async def test_a_grant_is_as_far_as_its_request_says(tmp_path: Path) -> None:
    async with desk(tmp_path, [APPROVAL]) as side:
        key = await side.make_approver()
        terms = Terms(ttl_seconds=77, max_uses=3, any_arguments=True, when={"args.command": "make *"})
        request = IssueGrant(agent="coder", tool="shell.exec", scope="ses_1", terms=terms)
        signed = sign_statement(issue_statement(DAEMON, request), key)
        given = IssueGrant(
            agent="coder",
            tool="shell.exec",
            scope="ses_1",
            terms=Terms(ttl_seconds=77, max_uses=3, any_arguments=True, when={"args.command": "make *"}),
            signed=signed,
        )
        made = await side.service.issue_grant(given, HUMAN)
        (kept,) = await side.grants.list(limit=5, usable=True)
        assert (kept.scope, kept.max_uses, kept.digest, dict(kept.when)) == (
            "ses_1",
            3,
            None,
            {"args.command": "make *"},
        )
        assert 0 < kept.expires_at - side.clock() <= 77
        assert (made.agent, made.tool, made.widened) == ("coder", "shell.exec", True)
        exact = IssueGrant(agent="coder", tool="shell.exec", arguments={"command": "make deploy"})
        exact_signed = sign_statement(issue_statement(DAEMON, exact), key)
        await side.service.issue_grant(
            IssueGrant(agent="coder", tool="shell.exec", arguments={"command": "make deploy"}, signed=exact_signed),
            HUMAN,
        )
        assert len(await side.service.list_grants(ListGrants(limit=1), HUMAN)) == 1
        await side.service.revoke_grant(OneGrant(grant_id=made.id), HUMAN)
        assert len(await side.service.list_grants(ListGrants(), HUMAN)) == 2
        assert len(await side.service.list_grants(ListGrants(usable=True), HUMAN)) == 1


async def test_a_passphrase_approves_as_far_as_it_says(tmp_path: Path) -> None:
    async with desk(tmp_path, [APPROVAL]) as side:
        await side.make_approver()
        async with anyio.create_task_group() as group:
            group.start_soon(side.gate().ask, call())
            asked = await side.asked()
            terms = {"any_arguments": True, "max_uses": 4}
            given = PassphraseApproval.model_validate(
                {"approval_id": asked.id, "passphrase": PASSPHRASE, "terms": terms}
            )
            await side.service.approve_by_passphrase(given, HUMAN)
        (kept,) = await side.grants.list(limit=5)
        assert (kept.digest, kept.max_uses) == (None, 4)
        assert await side.service.list_approvals(ListApprovals(), HUMAN) == []
        assert len(await side.service.list_approvals(ListApprovals(pending=False), HUMAN)) == 1
        assert len(await side.service.list_approvals(ListApprovals(pending=False, limit=1), HUMAN)) == 1


async def test_approvals_are_listed_up_to_the_limit(tmp_path: Path) -> None:
    async with desk(tmp_path, [APPROVAL]) as side:
        await side.make_approver()
        async with anyio.create_task_group() as group:
            group.start_soon(side.gate().ask, call(call_id="c1", command="one"))
            group.start_soon(side.gate().ask, call(call_id="c2", command="two"))
            with anyio.fail_after(20):
                while len(await side.service.list_approvals(ListApprovals(), HUMAN)) < 2:
                    await anyio.lowlevel.checkpoint()
            assert len(await side.service.list_approvals(ListApprovals(limit=1), HUMAN)) == 1
            group.cancel_scope.cancel()


async def test_an_approver_is_forgotten_by_its_own_signature(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        key = await side.make_approver()
        signed = sign_statement(Statement(daemon=DAEMON, decision="remove-key"), key)
        view = await side.service.forget_approver(ForgetApprover(signed=signed), HUMAN)
        assert view.public_key is None


@pytest.mark.parametrize(
    "change",
    [
        {"daemon": "node-other"},
        {"decision": "approve"},
        {"subject": "apr_1"},
        {"agent": "other"},
        {"tool": "file.write"},
        {"digest": "0" * 64},
        {"any_arguments": True},
        {"when": {"args.command": "make *"}},
        {"scope": "ses_1"},
        {"ttl_seconds": 7},
        {"max_uses": 7},
        {"at": 1},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_what_is_signed_has_to_be_what_is_asked_for(tmp_path: Path, change: dict[str, object]) -> None:
    async with desk(tmp_path, [APPROVAL]) as side:
        key = await side.make_approver()
        fields = {"agent": "coder", "tool": "shell.exec", "arguments": {"command": "make deploy"}}
        request = IssueGrant.model_validate(fields)
        statement = Statement.model_validate({**issue_statement(DAEMON, request).model_dump(), **change})
        given = request.model_copy(update={"signed": sign_statement(statement, key)})
        with pytest.raises(SubletError) as refused:
            await side.service.issue_grant(given, HUMAN)
        assert refused.value.code is LocalCode.APPROVAL_INVALID


async def test_what_was_signed_once_is_taken_once(tmp_path: Path) -> None:
    async with desk(tmp_path, [APPROVAL]) as side:
        key = await side.make_approver()
        fields = {"agent": "coder", "tool": "shell.exec", "arguments": {"command": "make deploy"}}
        request = IssueGrant.model_validate(fields)
        given = request.model_copy(update={"signed": sign_statement(issue_statement(DAEMON, request), key)})
        await side.service.issue_grant(given, HUMAN)
        with pytest.raises(SubletError):
            await side.service.issue_grant(given, HUMAN)
