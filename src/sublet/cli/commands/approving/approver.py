"""Commands about the approver's key: approver init, show, change, remove, reset."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.help import Sectioned, group
from sublet.cli.options.passphrase import approver_of, ask_new, unlocked
from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError

if TYPE_CHECKING:
    from nacl.signing import SigningKey

    from sublet.daemon.api.approvals import ApproverView, SetApprover
    from sublet.daemon.control.client import ControlClient as Control

approver = group("approver", "Your key for approvals, behind a passphrase.")


@approver.command(cls=Sectioned, name="init")
def approver_init(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """Make the key by which you approve, and choose its passphrase.

    The passphrase is asked in the terminal. Without this key, calls that need approval are refused.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from nacl.signing import SigningKey

        from sublet.daemon.api.approvals import SET_APPROVER

        now = await approver_of(control)
        if now.public_key is not None:
            raise SubletError(
                LocalCode.CONFLICT,
                f"there is an approver's key already: {now.fingerprint}",
                "Choose another passphrase for it: sublet approver change",
            )
        key = SigningKey.generate()
        made = await control.call(SET_APPROVER, _setting(now, key, key, ask_new()))
        if as_json:
            screen.emit(_told(made))
            return
        screen.show(f"Made the approver's key {made.fingerprint}.")
        screen.note("Calls that need approval now wait for you: sublet approvals --watch")

    run(ctx, screen, body)


@approver.command(cls=Sectioned, name="show")
def approver_show(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """Show whose approval counts here."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        found = await approver_of(control)
        if as_json:
            screen.emit(_told(found))
            return
        from sublet.cli.rendering.delegations import local_time

        if found.fingerprint:
            made = f"  made {local_time(found.made_at)}" if found.made_at else ""
            screen.show(f"{found.fingerprint}{made}")
        else:
            screen.note("No key, so calls that need approval are refused. Make one: sublet approver init")
        if found.reset_at:
            screen.note(f"A key was thrown away without its passphrase at {local_time(found.reset_at)}.")

    run(ctx, screen, body)


@approver.command(cls=Sectioned, name="change")
def approver_change(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """Choose another passphrase for the key. The old one is asked first."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.approvals import SET_APPROVER

        now = await approver_of(control)
        key = unlocked(now)
        changed = await control.call(SET_APPROVER, _setting(now, key, key, ask_new()))
        if as_json:
            screen.emit(_told(changed))
        else:
            screen.show("Changed. Copies of the state directory still open by the old passphrase.")

    run(ctx, screen, body)


@approver.command(cls=Sectioned, name="remove")
def approver_remove(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """Remove the key, and void all grants. Its passphrase is asked."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.approvals import FORGET_APPROVER, ForgetApprover
        from sublet.protocol.statement_signing import sign_statement
        from sublet.protocol.statements import Statement

        now = await approver_of(control)
        key = unlocked(now)
        signed = sign_statement(Statement(daemon=now.daemon, decision="remove-key"), key)
        removed = await control.call(FORGET_APPROVER, ForgetApprover(signed=signed))
        if as_json:
            screen.emit(_told(removed))
        else:
            screen.show("Removed. All grants are void; calls that need approval are refused.")

    run(ctx, screen, body)


@approver.command(cls=Sectioned, name="reset")
def approver_reset(
    ctx: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without, only say what would be done.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Throw the key away, since its passphrase is forgotten.

    All grants are void, the journal and the audit log say so, and `sublet status` goes on saying it.
    """
    screen = Screen(as_json=as_json)
    if not yes:
        raise typer.BadParameter("this voids all grants and is told for good in status, journal and audit; add --yes")

    async def body(control: Control) -> None:
        from sublet.daemon.api.approvals import FORGET_APPROVER, ForgetApprover

        done = await control.call(FORGET_APPROVER, ForgetApprover(reset=True))
        if as_json:
            screen.emit(_told(done))
        else:
            screen.show("Thrown away. All grants are void. Make another: sublet approver init")

    run(ctx, screen, body)


def _setting(now: ApproverView, new: SigningKey, signer: SigningKey, passphrase: str) -> SetApprover:
    from sublet.daemon.api.approvals import SetApprover
    from sublet.protocol.encoding import b64
    from sublet.protocol.sealed_key import seal
    from sublet.protocol.statement_signing import sign_statement
    from sublet.protocol.statements import Statement

    sealed = seal(new, passphrase)
    public_key = b64(bytes(new.verify_key))
    statement = Statement(
        daemon=now.daemon,
        decision="set-key",
        subject=public_key,
        digest=hashlib.sha256(sealed.encode()).hexdigest(),
    )
    return SetApprover(public_key=public_key, sealed=sealed, signed=sign_statement(statement, signer))


def _told(view: ApproverView) -> dict[str, object]:
    return view.model_dump(mode="json", exclude={"sealed"})
