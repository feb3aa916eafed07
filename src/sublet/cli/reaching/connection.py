"""How a command reaches the daemon, and how its coroutine is run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import typer

from sublet.cli.errors import Exit, exit_for, sole_error
from sublet.cli.rendering.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError

if TYPE_CHECKING:
    from sublet.daemon.api.assignments import AssignmentView
    from sublet.daemon.api.delegation_views import DelegationView
    from sublet.daemon.control.client import ControlClient as Control

ResultT = TypeVar("ResultT")
Connect = Callable[[], "AbstractAsyncContextManager[Control]"]


@asynccontextmanager
async def control_socket() -> AsyncIterator[Control]:
    """Connect to this user's daemon.

    Raises:
        SubletError: ``DAEMON_UNAVAILABLE`` where none answers.
    """
    from sublet.daemon.config.paths import resolve_home
    from sublet.daemon.control.client import ControlClient

    async with ControlClient(resolve_home()) as client:
        yield client


def lock_owner() -> int | None:
    """Return the pid of the daemon that holds this user's lock, whether it answers or not."""
    from sublet.daemon.config.paths import resolve_home
    from sublet.daemon.process.lock import read_owner

    owner = read_owner(resolve_home())
    return owner.pid if owner else None


@dataclass
class Session:
    """What all commands of one invocation share; tests put other ways to the daemon in."""

    connect: Connect = control_socket
    owner: Callable[[], int | None] = lock_owner
    debug: bool = False


def session_of(ctx: typer.Context) -> Session:
    """Return the invocation's session, made on first use."""
    root = ctx.find_root()
    if not isinstance(root.obj, Session):
        root.obj = Session()
    return root.obj


def run(ctx: typer.Context, screen: Screen, body: Callable[[Control], Coroutine[None, None, Exit | None]]) -> None:
    """Run ``body`` against the daemon and leave the command with its exit status.

    Raises:
        typer.Exit: always, but for success.
    """
    session = session_of(ctx)

    async def main() -> Exit | None:
        async with session.connect() as control:
            return await body(control)

    if status := leave(screen, main):
        raise typer.Exit(status)


def leave(screen: Screen, main: Callable[[], Coroutine[None, None, ResultT]]) -> ResultT:
    """Run ``main`` to its end and return what it returns.

    Raises:
        typer.Exit: ``main`` failed with a ``SubletError``, which has been shown.
    """
    import asyncio  # which takes as long as all the rest of `--help`

    try:
        return asyncio.run(main())
    except Exception as error:
        told = sole_error(error)
        if told is None:
            raise
        screen.fail(told)
        raise typer.Exit(exit_for(str(told.code))) from None


async def either_of(control: Control, delegation_id: str) -> DelegationView | AssignmentView:
    """Return a delegation of one's own as it is now, or else the work that is done here for a peer under that id.

    Raises:
        SubletError: ``NOT_FOUND`` where it is neither.
    """
    try:
        return await view_of(control, delegation_id)
    except SubletError as error:
        if error.code != LocalCode.NOT_FOUND:
            raise
        missing = error
    from sublet.daemon.api.assignments import GET_ASSIGNMENT
    from sublet.daemon.api.delegation_fields import OneDelegation

    try:
        return await control.call(GET_ASSIGNMENT, OneDelegation(delegation_id=delegation_id))
    except SubletError as error:
        raise missing if error.code == LocalCode.NOT_FOUND else error from None


async def view_of(control: Control, delegation_id: str) -> DelegationView:
    """Return a delegation as it is now."""
    from sublet.daemon.api.delegation_fields import OneDelegation
    from sublet.daemon.api.delegations import GET_DELEGATION

    return await control.call(GET_DELEGATION, OneDelegation(delegation_id=delegation_id))
