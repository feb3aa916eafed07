"""Commands about results that are kept apart until somebody has looked at them: review, apply, discard, undo."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.errors import Exit
from sublet.cli.options.delegations import IdArgument, resolve
from sublet.cli.options.panels import panel_of
from sublet.cli.options.values import JsonFlag, branch_name
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.patches import show_patch
from sublet.cli.rendering.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_name

if TYPE_CHECKING:
    from sublet.daemon.api.results import Review
    from sublet.daemon.control.client import ControlClient as Control


def review(
    ctx: typer.Context,
    delegation_id: IdArgument,
    stat: Annotated[
        bool, typer.Option("--stat", help="Only which files, and what applying comes to.", show_default=False)
    ] = False,
    patch: Annotated[
        str | None,
        typer.Option("--patch", metavar="FILE", help="Write the whole patch, also of binaries, for `git apply`."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the patch of a staged result, and its conflicts.

    Of a panel, the results side by side. Coloured on a terminal, plain in a pipe. Nothing is changed by looking.
    """
    if stat and patch is not None:
        raise typer.BadParameter("--stat shows which files, --patch writes what is in them: give one of the two")
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.delegation_fields import OneDelegation, OneWithPatch
        from sublet.daemon.api.results import EXPORT_RESULT, REVIEW_RESULT

        if (panel := await panel_of(control, delegation_id)) is not None:
            from sublet.cli.reaching.panels import review_panel

            await review_panel(control, screen, panel, stat=stat, patch=patch)
            return
        found = await resolve(control, delegation_id)
        if patch is not None:
            made = await control.call(EXPORT_RESULT, OneDelegation(delegation_id=found))
            written = _write(patch, _decoded(made.base64))
            if as_json:
                facts = {"delegation_id": found, "file": str(written[0]), "bytes": written[1]}
                screen.emit({**facts, "left_out": made.left_out} if made.left_out else facts)
            else:
                from sublet.cli.rendering.review import not_carried

                for line in not_carried(made.left_out):
                    screen.err.print(line)
                screen.note(f"{written[1]:,} bytes written to {clean_name(str(written[0]))}")
            return
        asked = OneWithPatch(delegation_id=found, patch=not stat)
        report = await control.call(REVIEW_RESULT, asked)
        if as_json:
            screen.emit(report.model_dump(mode="json"))
            return
        from sublet.cli.rendering.review import obstacles, reviewed

        if stat:
            screen.show(reviewed(report, screen.symbols))
        elif report.change_set.status != "discarded":
            show_patch(report.patch or "", screen, nothing="The result changes nothing.")
            if report.patch_truncated:
                screen.note(f"The patch was cut; all of it: sublet review {found} --patch FILE")
        for line in obstacles(report, screen.symbols):
            screen.err.print(line)
        for line in _next(report, found):
            screen.note(line)

    run(ctx, screen, body)


def apply(
    ctx: typer.Context,
    delegation_id: IdArgument,
    partial: Annotated[
        bool, typer.Option("--partial", help="With conflicts, apply what has none.", show_default=False)
    ] = False,
    allow_mass_deletion: Annotated[
        bool,
        typer.Option("--allow-mass-deletion", help="Also where most of the directory would go.", show_default=False),
    ] = False,
    branch: Annotated[
        str | None,
        typer.Option(
            "--branch",
            metavar="NAME",
            parser=branch_name,
            help="Make a git branch of it instead; files stay as they are.",
        ),
    ] = None,
    member: Annotated[
        int | None,
        typer.Option("--member", metavar="N", min=1, help="Of a panel: whose result; the others are dropped."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Merge a staged result into the directory.

    All of it, or nothing where there are conflicts. What changed in the directory since the lease began is kept.
    `sublet undo` takes it back.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> Exit | None:
        from sublet.daemon.api.results import APPLY_RESULT, ApplyResult

        if (panel := await panel_of(control, delegation_id)) is not None:
            from sublet.cli.reaching.panels import apply_member

            if branch is not None:
                raise typer.BadParameter("make a branch of one member: sublet apply dlg_… --branch NAME")
            return await apply_member(
                control, screen, panel, member, partial=partial, allow_mass_deletion=allow_mass_deletion
            )
        if member is not None:
            raise typer.BadParameter("it goes with the id of a panel", param_hint="--member")
        found = await resolve(control, delegation_id)
        request = ApplyResult(
            delegation_id=found, partial=partial, allow_mass_deletion=allow_mass_deletion, branch=branch
        )
        report = await control.call(APPLY_RESULT, request)
        status = Exit.CONFLICTS if report.conflicts else None
        if as_json:
            screen.emit(report.model_dump(mode="json"))
            return status
        from sublet.cli.rendering.review import applied

        screen.show(applied(report, screen.symbols))
        if report.undo is not None and report.applied:
            screen.note(f"Take it back:  sublet undo {found}")
        if report.conflicts and not report.applied:
            screen.note(f"Apply the rest:  sublet apply {found} --partial")
        return status

    run(ctx, screen, body)


def discard(ctx: typer.Context, delegation_id: IdArgument, as_json: JsonFlag = False) -> None:
    """Drop a staged result. Your directory stays as it is.

    Of a panel, all results.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.delegation_fields import OneDelegation
        from sublet.daemon.api.results import DISCARD_RESULT

        if (panel := await panel_of(control, delegation_id)) is not None:
            from sublet.cli.reaching.panels import discard_panel

            await discard_panel(control, screen, panel)
            return
        asked = OneDelegation(delegation_id=await resolve(control, delegation_id))
        report = await control.call(DISCARD_RESULT, asked)
        if as_json:
            screen.emit(report.model_dump(mode="json"))
            return
        screen.show("The result was dropped; your directory is as it was.")

    run(ctx, screen, body)


def undo(ctx: typer.Context, delegation_id: IdArgument, as_json: JsonFlag = False) -> None:
    """Take back what `apply` did, or what a live lease wrote.

    What was changed since `apply` is left as it is, and listed. What a live lease wrote is merged with what was
    changed since; what can't be merged is left, and listed.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> Exit | None:
        from sublet.daemon.api.delegation_fields import OneDelegation
        from sublet.daemon.api.results import UNDO_RESULT

        report = await control.call(UNDO_RESULT, OneDelegation(delegation_id=await resolve(control, delegation_id)))
        status = Exit.CONFLICTS if report.conflicts else None
        if as_json:
            screen.emit(report.model_dump(mode="json"))
            return status
        from sublet.cli.rendering.review import undone

        screen.show(undone(report, screen.symbols))
        return status

    run(ctx, screen, body)


def _next(report: Review, delegation_id: str) -> list[str]:
    status = report.change_set.status
    if status == "pending" and not report.files and not report.directories:
        return [f"Drop it:  sublet discard {delegation_id}"]
    if status == "pending":
        most = " --allow-mass-deletion" if report.mass_deletion else ""
        return [f"Apply it:  sublet apply {delegation_id}{most}", f"Drop it:   sublet discard {delegation_id}"]
    if status == "undone":
        return [f"It was taken back. Apply it again:  sublet apply {delegation_id}"]
    if status == "applied":
        return [f"It is applied. Take it back:  sublet undo {delegation_id}"]
    if status == "partly_applied":
        return [f"It is applied in part. Take that back:  sublet undo {delegation_id}"]
    return [f"It is {status}."]


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SubletError(
            LocalCode.INTERNAL, "the daemon's answer is not understood", "Restart it with this version of sublet."
        ) from None


def _write(file: str, content: bytes) -> tuple[Path, int]:
    """Write a new file; what is there already stays.

    Raises:
        SubletError: ``CONFLICT`` where it exists, ``UNAVAILABLE`` where it can't be written.
    """
    path = Path(file).expanduser().absolute()
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as out:
            out.write(content)
    except FileExistsError:
        raise SubletError(LocalCode.CONFLICT, f"{clean_name(file)} exists already", "Name another file.") from None
    except OSError as error:
        raise SubletError(
            LocalCode.UNAVAILABLE, f"{clean_name(file)} can't be written: {error.strerror}", "Name another file."
        ) from None
    return path, len(content)
