"""Panels as commands reach them: begun by ``delegate --panel``, then followed, compared and taken by their handle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sublet.cli.errors import Exit
from sublet.cli.rendering.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.faults import fault_words

if TYPE_CHECKING:
    from sublet.daemon.api.panels import CreatePanel, PanelView
    from sublet.daemon.control.client import ControlClient as Control

LOOK_SECONDS = 1.0
"""How often it is looked how the members stand."""
_NAMES = {"members": "--panel", "check_seconds": "--check-time", "max_agent_seconds": "--agent-time", "to": "--to"}


def panel_request(given: Mapping[str, object]) -> CreatePanel:
    """Build the request for a panel.

    Raises:
        SubletError: ``INVALID_ARGUMENT``.
    """
    from pydantic import ValidationError

    from sublet.daemon.api.panels import CreatePanel

    try:
        return CreatePanel.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        words = fault_words(first)
        option = _NAMES.get(name, "--" + name.replace("_", "-"))
        said = f"{option}: {words}" if name else words.removeprefix("Value error, ")
        raise SubletError(LocalCode.INVALID_ARGUMENT, said, "See `sublet delegate --help`.") from None


async def begin_panel(control: Control, screen: Screen, request: CreatePanel, *, background: bool) -> Exit:
    """Begin a panel, and go along until its end."""
    from sublet.daemon.api.panels import CREATE_PANEL

    view = await control.call(CREATE_PANEL, request)
    if background:
        if screen.as_json:
            screen.emit(view.model_dump(mode="json"))
        else:
            screen.show(view.panel_id)
            screen.note(f"Follow it:  sublet attach {view.panel_id}")
        return Exit.OK
    return await follow_panel(control, screen, view)


async def follow_panel(control: Control, screen: Screen, view: PanelView) -> Exit:
    """Show how the members of a panel come along, until it is over; Ctrl-C detaches."""
    from sublet.cli.reaching.follow import interrupts
    from sublet.cli.rendering.panels import member_line, panel_table
    from sublet.daemon.api.panels import WAIT_FOR_PANEL, WaitForPanel

    if not screen.as_json:
        screen.note(f"{view.panel_id}: {len(view.members)} agents have the task")
    told: dict[int, str] = {}
    with interrupts() as pressed:
        while True:
            for member in view.members:
                line = member_line(member)
                if told.get(member.member) != line:
                    told[member.member] = line
                    screen.note(line)
            if view.state == "over" or pressed.is_set():
                break
            view = await control.call(WAIT_FOR_PANEL, WaitForPanel(panel_id=view.panel_id, timeout=LOOK_SECONDS))
    if screen.as_json:
        screen.emit(view.model_dump(mode="json"))
    elif view.state == "over":
        screen.show(panel_table(view))
        screen.note(f"Compare them:  sublet review {view.panel_id}")
        screen.note(f"Take one:      sublet apply {view.panel_id} --member N")
        screen.note(f"Drop all:      sublet discard {view.panel_id}")
    else:
        screen.note(f"Detached; the work goes on. Back to it:  sublet attach {view.panel_id}")
    return exit_for_panel(view)


def exit_for_panel(view: PanelView) -> Exit:
    """Return the exit status: 0 only where there is a result, which has passed the check where there is one."""
    from sublet.protocol.panels import MemberState

    if view.state != "over":
        return Exit.INTERRUPTED
    good = MemberState.READY if view.check is None else MemberState.PASSED
    return Exit.OK if any(one.state is good for one in view.members) else Exit.ERROR


async def attach_panel(control: Control, screen: Screen, panel_id: str) -> Exit:
    """Watch a panel that was begun before."""
    return await follow_panel(control, screen, await _panel(control, panel_id))


async def review_panel(control: Control, screen: Screen, panel_id: str, *, stat: bool, patch: str | None) -> None:
    """Show the results of a panel side by side."""
    from sublet.daemon.api.panels import REVIEW_PANEL, OnePanel

    if patch is not None:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, "a panel has several patches", "Name one of its members: sublet review dlg_…"
        )
    found = await control.call(REVIEW_PANEL, OnePanel(panel_id=panel_id))
    if screen.as_json:
        screen.emit(found.model_dump(mode="json"))
        return
    from sublet.cli.rendering.panels import check_outputs, file_table, panel_table

    screen.show(panel_table(found.panel))
    if found.files:
        screen.show(file_table(found, screen.symbols))
    if found.truncated:
        screen.note("There are more files: sublet review of one member lists its own.")
    for line in found.unread:
        screen.note(f"can't be compared: member {line}")
    if not stat:
        for part in check_outputs(found.panel, screen.symbols):
            screen.show(part)
    screen.note(f"One patch:  sublet review {found.panel.members[0].delegation_id}")
    screen.note(f"Take one:   sublet apply {panel_id} --member N")


async def apply_member(
    control: Control, screen: Screen, panel_id: str, member: int | None, *, partial: bool, allow_mass_deletion: bool
) -> Exit | None:
    """Apply the result of one member, and drop those of the others."""
    from sublet.daemon.api.panels import APPLY_MEMBER, ApplyMember

    if member is None:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            "say which member's result is to be applied",
            f"sublet review {panel_id} numbers them: sublet apply {panel_id} --member N",
        )
    asked = ApplyMember(panel_id=panel_id, member=member, partial=partial, allow_mass_deletion=allow_mass_deletion)
    report = await control.call(APPLY_MEMBER, asked)
    status = Exit.CONFLICTS if report.applied.conflicts else None
    if screen.as_json:
        screen.emit(report.model_dump(mode="json"))
        return status
    from sublet.cli.rendering.review import applied

    screen.show(applied(report.applied, screen.symbols))
    _told(screen, report.discarded, report.kept)
    if report.applied.undo is not None and report.applied.applied:
        screen.note(f"Take it back:  sublet undo {report.applied.delegation_id}")
    return status


async def discard_panel(control: Control, screen: Screen, panel_id: str) -> None:
    """Drop all results of a panel."""
    from sublet.daemon.api.panels import DISCARD_PANEL, OnePanel

    report = await control.call(DISCARD_PANEL, OnePanel(panel_id=panel_id))
    if screen.as_json:
        screen.emit(report.model_dump(mode="json"))
        return
    _told(screen, report.discarded, report.kept)
    screen.show("Your directory is as it was.")


async def cancel_panel(control: Control, screen: Screen, panel_id: str) -> None:
    """Stop a panel; results that are there stay."""
    from sublet.daemon.api.panels import CANCEL_PANEL, OnePanel

    before = await _panel(control, panel_id)
    view = await control.call(CANCEL_PANEL, OnePanel(panel_id=panel_id))
    if screen.as_json:
        screen.emit(view.model_dump(mode="json"))
        return
    from sublet.cli.rendering.panels import panel_table

    screen.show(panel_table(view))
    if before.state == "over":
        screen.note("It was over already, so nothing was stopped.")


async def _panel(control: Control, panel_id: str) -> PanelView:
    from sublet.daemon.api.panels import GET_PANEL, OnePanel

    return await control.call(GET_PANEL, OnePanel(panel_id=panel_id))


def _told(screen: Screen, discarded: list[str], kept: list[str]) -> None:
    from sublet.cli.rendering.words import count, whole_line

    if discarded:
        screen.note(f"{count(len(discarded), 'result')} of others dropped.")
    for line in kept:
        screen.note(f"not dropped: {whole_line(line)}")
