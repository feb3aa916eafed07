"""``sublet delegate``: lend a directory, watch the work, see what changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.errors import Exit, exit_for_view
from sublet.cli.help import verbatim
from sublet.cli.options.declared import Given, option_of, takes
from sublet.cli.options.given_text import STDIN, from_stdin
from sublet.cli.options.lease import (
    Background,
    HowFilesTravel,
    LeaseSaid,
    Notify,
    ReadOnly,
    RequireSandbox,
    ResultBranch,
    Staged,
    To,
    Ttl,
    Wait,
)
from sublet.cli.options.panels import PanelSaid
from sublet.cli.options.values import JsonFlag, directory_path
from sublet.cli.options.view import Git, Resource, Resources, ViewOptions
from sublet.cli.reaching.connection import run, view_of
from sublet.cli.rendering.screen import Screen
from sublet.protocol.bounds import MAX_PROMPT_CHARS, MAX_TTL_SECONDS, GitMode, TransportWish
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.faults import fault_words
from sublet.protocol.text import clean

if TYPE_CHECKING:
    from sublet.cli.reaching.follow import Choice, Follower
    from sublet.daemon.api.delegation_views import DelegationView
    from sublet.daemon.api.delegations import CreateDelegation
    from sublet.daemon.control.client import ControlClient as Control

CANCEL_WAIT_SECONDS = 10.0

EPILOG = verbatim(
    (
        "Examples",
        """sublet delegate . --to bob "Make the tests pass."
sublet delegate ~/api --to bob/reviewer "Review it." --ro --ttl 15m
sublet delegate . --to capability:test "Make the tests pass."
sublet delegate . --to capability:repair --panel 3 --check "make test" "Mend it."
sublet delegate . --to bob "Tidy up." --staged && sublet review last
sublet delegate . --to bob "Document it." --include src --resource docs=../docs:rw
id=$(sublet delegate . --to bob - --background < task.md)""",
    ),
    (
        "Ctrl-C",
        """asks whether to detach, to cancel or to keep watching; without a
terminal it detaches. What was left goes on: `sublet attach ID` finds
it again.""",
    ),
)


_OF_PANELS = {
    "members": "--panel",
    "check": "--check",
    "check_seconds": "--check-time",
    "first": "--first",
    "max_agent_seconds": "--agent-time",
}
_SAID = {
    "prompt": f"the prompt must have 1 to {MAX_PROMPT_CHARS:,} characters",
    "resources": "--resource takes NAME=DIR[:ro|rw], 15 times at most; NAME has lower-case letters, digits, . _ and -",
    "require_enforced": "--require-sandbox takes names such as cwd_only,memory,processes; of cwd_only, allow_network "
    "and allow_exec also with =true or =false",
    "ttl_seconds": f"--ttl must be between 1 s and {MAX_TTL_SECONDS // 86_400} days",
}
"""What is wrong where a field has another name or another form here than in the request.

Of all others the words are made from the field's own bounds.
"""


@takes(ViewOptions, LeaseSaid, PanelSaid)
def delegate(
    ctx: typer.Context,
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Directory to lend.", show_default=False)],
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="What to do there; - reads it from stdin.", show_default=False)
    ],
    to: To,
    ro: ReadOnly = False,
    staged: Staged = False,
    result_branch: ResultBranch = None,
    ttl: Ttl = None,
    wait: Wait = False,
    transport: HowFilesTravel = "sshfs",
    resource: Resources = None,
    git: Git = None,
    require_sandbox: RequireSandbox = None,
    background: Background = False,
    notify: Notify = False,
    as_json: JsonFlag = False,
    *,
    given: Given,
) -> None:
    """Lend DIR to a peer's agent, which works in it as PROMPT says.

    Exit status 0 means that the work is completed; with --background, that it was handed over.
    """
    if notify and background:
        raise typer.BadParameter(
            "nobody waits for the end of work in the background; set hooks.notify in config.json for that",
            param_hint="--notify",
        )
    screen = Screen(as_json=as_json)
    workspace_dir = directory_path(directory)
    panel = {name: value for name, value in given.items() if name in _OF_PANELS}
    lease = {name: value for name, value in given.items() if name not in _OF_PANELS}
    _check_panel(panel, resource, result_branch, notify=notify, watch="watch" in lease)

    async def body(control: Control) -> Exit:
        request = _request(
            workspace_dir,
            prompt,
            to if panel else await _peer(control, screen, to),
            ro=ro,
            ttl=ttl,
            wait=wait,
            resources=resource or [],
            git=git,
            require_enforced=[item.strip() for items in require_sandbox or [] for item in items.split(",")],
            staged=staged,
            result_branch=result_branch,
            transport=transport,
            given=lease,
        )
        if panel:
            from sublet.cli.reaching.panels import begin_panel, panel_request

            return await begin_panel(control, screen, panel_request(_of_panel(request, panel)), background=background)
        from sublet.daemon.api.delegations import CREATE_DELEGATION

        view = await control.call(CREATE_DELEGATION, request)
        if background:
            _show_handle(view, screen)
            return exit_for_view(view, background=True)
        view, choice, follower = await _watch(control, view, screen)
        if choice == "detach":
            _show_detached(view, screen)
            return Exit.INTERRUPTED
        _show_end(view, screen, follower)
        if notify:
            from sublet.cli.rendering.notify import notify as tell

            tell(view)
        return exit_for_view(view)

    run(ctx, screen, body)


def _check_panel(
    panel: Given, resources: Sequence[Resource] | None, result_branch: str | None, *, notify: bool, watch: bool
) -> None:
    """Refuse options of panels without one, and what a panel can't have.

    Raises:
        typer.BadParameter: names the option.
    """
    if not panel:
        return
    if "members" not in panel:
        raise typer.BadParameter("it goes with --panel N", param_hint=_OF_PANELS[next(iter(panel))])
    if "check" not in panel and (idle := [_OF_PANELS[one] for one in ("check_seconds", "first") if one in panel]):
        raise typer.BadParameter("it goes with --check COMMAND", param_hint=idle[0])
    unfit = {"--resource": resources, "--result-branch": result_branch, "--notify": notify, "--watch": watch}
    for option, said in unfit.items():
        if said:
            raise typer.BadParameter("a panel can't have it", param_hint=option)


def _of_panel(request: CreateDelegation, panel: Given) -> dict[str, object]:
    """Return the fields of the request for a panel."""
    left_out = {"peer", "result_branch", "watch", "resources", "result_mode"}
    fields = {name: value for name, value in dict(request).items() if name not in left_out}
    more = {name: value for name, value in panel.items() if name != "first"}
    return {**fields, **more, "to": request.peer, **({"stop": "first_pass"} if panel.get("first") else {})}


async def _peer(control: Control, screen: Screen, to: str) -> str:
    """Return the peer that is meant, where it was named as an agent of a node or by what it can do.

    Raises:
        SubletError: ``NOT_FOUND`` where there is none, ``INVALID_ARGUMENT`` where it is an agent of this node.
    """
    from sublet.daemon.api.federation import CAPABILITY, FIND_AGENT, Find

    if "@" not in to and not to.startswith(CAPABILITY):
        return to
    found = await control.call(FIND_AGENT, Find(to=to))
    if found.peer is None:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"{clean(found.address)} can't be lent a directory: {clean(found.why)}",
            "Name an agent of another node: sublet agents --everywhere",
        )
    screen.note(f"[{clean(found.why)}]")
    return f"{found.peer}/{found.agent_id}"


async def _watch(control: Control, view: DelegationView, screen: Screen) -> tuple[DelegationView, Choice, Follower]:
    """Go along until the end or until the person decides otherwise; return who has shown it, too."""
    from sublet.cli.reaching.follow import ask_choice, interrupts

    with interrupts() as pressed:
        while True:
            ended, follower = await _until(control, view, screen, pressed)
            if ended is not None:
                return ended, "continue", follower
            choice = "detach" if screen.as_json else await ask_choice(pressed)
            pressed.clear()
            if choice == "detach":
                return await view_of(control, view.delegation_id), "detach", follower
            if choice == "cancel":
                return await _cancelled(control, view.delegation_id), "cancel", follower


async def _cancelled(control: Control, delegation_id: str) -> DelegationView:
    from sublet.daemon.api.delegation_fields import OneDelegation
    from sublet.daemon.api.delegations import CANCEL_DELEGATION, WAIT_FOR_END, WaitForEnd

    await control.call(CANCEL_DELEGATION, OneDelegation(delegation_id=delegation_id))
    return await control.call(WAIT_FOR_END, WaitForEnd(delegation_id=delegation_id, timeout=CANCEL_WAIT_SECONDS))


async def _until(
    control: Control, view: DelegationView, screen: Screen, pressed: asyncio.Event
) -> tuple[DelegationView | None, Follower]:
    """Follow the delegation; None where Ctrl-C came first. With it comes who has shown it."""
    from sublet.cli.reaching.follow import until_interrupted

    with _follower(view, screen) as follower:
        return await until_interrupted(control, view.delegation_id, follower, pressed), follower


@contextmanager
def _follower(view: DelegationView, screen: Screen) -> Iterator[Follower]:
    """Choose how the work is shown: not at all for scripts, live on a terminal, else line by line."""
    if screen.as_json:
        from sublet.cli.reaching.follow import Unseen

        yield Unseen()
        return
    from sublet.cli.rendering.live import live, plain

    with (live if screen.err.is_terminal else plain)(view, screen) as follower:
        yield follower


def _request(
    workspace_dir: str,
    prompt: str,
    to: str,
    *,
    ro: bool,
    ttl: int | None,
    wait: bool,
    resources: Sequence[Resource],
    git: GitMode | None,
    require_enforced: list[str],
    staged: bool,
    result_branch: str | None,
    transport: TransportWish,
    given: Given,
) -> CreateDelegation:
    """Build the request.

    Raises:
        SubletError: ``INVALID_ARGUMENT``.
    """
    from pydantic import ValidationError

    from sublet.daemon.api.delegations import DEFAULT_TTL_SECONDS, CreateDelegation

    try:
        return CreateDelegation.model_validate(
            {
                "workspace_dir": workspace_dir,
                "peer": to,
                "prompt": _prompt(prompt),
                "access_mode": "ro" if ro else "rw",
                "ttl_seconds": DEFAULT_TTL_SECONDS if ttl is None else ttl,
                "require_enforced": require_enforced,
                "result_mode": "staged" if staged or result_branch is not None else "live",
                "result_branch": result_branch,
                "transport": transport,
                "wait_for_peer": wait,
                "resources": [lent._asdict() for lent in resources],
                "git": git or "hidden",
                **given,
            }
        )
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = str(first["loc"][0])
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            _SAID.get(name, f"{option_of(name)}: {fault_words(first)}"),
            "See `sublet delegate --help`.",
        ) from None


def _prompt(given: str) -> str:
    if given != STDIN:
        return given
    text = from_stdin(MAX_PROMPT_CHARS, "the prompt")
    if not text.strip():
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            "the prompt on stdin is empty",
            "Pipe it in: `echo … | sublet delegate DIR … -`.",
        )
    return text


def _show_handle(view: DelegationView, screen: Screen) -> None:
    if screen.as_json:
        screen.emit(view.model_dump(mode="json"))
        return
    from sublet.cli.rendering.delegations import narrowed_time

    # the id alone on stdout, so that `id=$(sublet delegate … --background)` works
    screen.show(view.delegation_id)
    if narrowed := narrowed_time(view):
        screen.note(f"Less time than asked for: {narrowed}.")
    screen.note(f"Follow it:  sublet attach {view.delegation_id}")


def _show_detached(view: DelegationView, screen: Screen) -> None:
    if screen.as_json:
        screen.emit(view.model_dump(mode="json"))
        return
    screen.note("Detached; the work goes on.")
    screen.note(f"Follow it:  sublet attach {view.delegation_id}")
    screen.note(f"Stop it:    sublet cancel {view.delegation_id}")


def _show_end(view: DelegationView, screen: Screen, follower: Follower) -> None:
    if screen.as_json:
        screen.emit(view.model_dump(mode="json"))
        return
    from sublet.cli.rendering.delegations import summary
    from sublet.cli.rendering.review import review_steps

    screen.show(summary(view, screen.symbols, follower.has_shown))
    if steps := review_steps(view):
        for step in steps:
            screen.note(f"  {step}")
    elif view.audit is not None and not view.audit.is_empty:
        screen.note(f"  every line: sublet diff {view.delegation_id}")
