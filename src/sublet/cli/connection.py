"""How a command reaches the daemon, and how its coroutine is run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import typer

from sublet.cli.errors import Exit, exit_for
from sublet.cli.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ids import DELEGATION_ID
from sublet.protocol.text import clean_line

if TYPE_CHECKING:
    from sublet.daemon.api.daemon_models import Check, PruneReport, PruneRequest, ReloadReport, StatusView
    from sublet.daemon.api.models import AssignmentView, AuditReport, CreateDelegation, DelegationView, EventPage
    from sublet.daemon.api.peer_models import AddPeer, Directory, PairLink, PeerView, TokenView
    from sublet.daemon.api.policy_models import AuditPage, AuditVerdict, ExplainRequest, Explanation, PolicyView
    from sublet.daemon.api.review_models import Applied, ApplyRequest, Discarded, ResultPatch, Review, Undone
    from sublet.daemon.api.supervisor_models import (
        AskAnswer,
        AskBegun,
        AskOutput,
        AskRequest,
        LocalAgents,
        SessionDetail,
        SessionView,
        Status,
    )

ResultT = TypeVar("ResultT")
LIST_LIMIT = 500
"""How many delegations are looked through for an abbreviated id."""
MAX_SHOWN_CHARS = 80
NEWEST = "last"
"""What stands for the newest delegation on the command line."""


class SupervisorControl(Protocol):
    """What commands ask of the supervisor: ``SupervisorApi`` as its owner sees it."""

    def ask(self, request: AskRequest) -> AsyncGenerator[AskBegun | AskOutput | AskAnswer, None]:
        """Have the supervisor see to ``request``; the last that is yielded is what came of it."""

    async def list_agents(self) -> LocalAgents:
        """Return the agents of this daemon."""

    async def list_sessions(self, *, limit: int = 50) -> list[SessionView]:
        """Return the sessions that were used last."""

    async def get_session(self, session_id: str, *, messages: int = 20) -> SessionDetail:
        """Return a session with its bindings and newest messages."""

    async def create_session(self, title: str) -> SessionView:
        """Begin a session."""

    async def change_session(self, session_id: str, status: Status) -> SessionView:
        """Pause, complete or resume a session."""

    async def delete_session(self, session_id: str) -> SessionView:
        """Forget a session."""


class PolicyControl(Protocol):
    """What commands ask of policy and the audit log: ``PolicyApi`` as its owner sees it."""

    async def show_policy(self) -> PolicyView:
        """Return every rule and limit that holds now."""

    async def explain(self, request: ExplainRequest) -> Explanation:
        """Answer a question as policy would."""

    async def audit_entries(self, *, cursor: int | None = None, limit: int = 100, timeout: float = 0) -> AuditPage:
        """Return entries of the audit log after ``cursor``, or the newest."""

    async def verify_audit(self) -> AuditVerdict:
        """Check the whole chain."""


class Control(Protocol):
    """What commands ask of the daemon: ``DaemonApi`` as its owner sees it."""

    @property
    def policy(self) -> PolicyControl:
        """The operations around policy and the audit log."""

    @property
    def supervisor(self) -> SupervisorControl:
        """The operations around asking and sessions."""

    async def create_delegation(self, request: CreateDelegation) -> DelegationView:
        """Record a delegation and return its handle."""

    async def get_status(self, delegation_id: str) -> DelegationView:
        """Return a delegation as it is now."""

    async def wait_for_result(self, delegation_id: str, timeout: float) -> DelegationView:
        """Wait at most ``timeout`` seconds for the end."""

    async def list_delegations(self, *, limit: int = 50, active: bool = False) -> list[DelegationView]:
        """Return the newest delegations first."""

    async def events_since(
        self, cursor: int, *, delegation_id: str | None = None, timeout: float = 0, limit: int = 100
    ) -> EventPage:
        """Return events after ``cursor``, waiting at most ``timeout`` seconds for the first one."""

    async def get_audit_report(self, delegation_id: str, *, patch: bool = False) -> AuditReport:
        """Return what the delegation changed."""

    async def cancel_delegation(self, delegation_id: str) -> DelegationView:
        """Stop a delegation."""

    async def extend_delegation(self, delegation_id: str, seconds: int) -> DelegationView:
        """Lengthen a lease that runs."""

    async def say(self, delegation_id: str, prompt: str, *, follow_up_id: str | None = None) -> DelegationView:
        """Give the agent a further prompt."""

    async def review_delegation(self, delegation_id: str, *, patch: bool = False) -> Review:
        """Return what a staged result would change."""

    async def result_patch(self, delegation_id: str) -> ResultPatch:
        """Return the whole of a staged result as a patch."""

    async def apply_delegation(self, delegation_id: str, request: ApplyRequest) -> Applied:
        """Merge a staged result into the directory."""

    async def discard_delegation(self, delegation_id: str) -> Discarded:
        """Drop a staged result."""

    async def undo_delegation(self, delegation_id: str) -> Undone:
        """Take back what was applied of a staged result."""

    async def prune_resources(self, request: PruneRequest) -> PruneReport:
        """Remove what ended delegations left behind."""

    async def list_assignments(self, *, limit: int = 50, active: bool = False) -> list[AssignmentView]:
        """Return work done for peers."""

    async def directory(self) -> Directory:
        """Return peers and agents."""

    async def create_pair_link(self, *, ttl_seconds: int = 600) -> PairLink:
        """Make a one-time pairing link."""

    async def add_peer(self, request: AddPeer) -> PeerView:
        """Use the other side's pairing link."""

    async def list_peers(self) -> list[PeerView]:
        """Return all paired daemons."""

    async def remove_peer(self, name: str) -> PeerView:
        """Forget a peer."""

    async def create_token(self, name: str, ttl_seconds: int | None) -> TokenView:
        """Make a bearer token for a plain A2A client."""

    async def list_tokens(self) -> list[TokenView]:
        """Return the tokens, without their secrets."""

    async def revoke_token(self, name: str) -> TokenView:
        """Make a token useless."""

    async def list_lend_roots(self) -> list[str]:
        """Return the directories below which MCP callers may lend."""

    async def add_lend_root(self, path: str) -> list[str]:
        """Allow MCP callers to lend below ``path``."""

    async def remove_lend_root(self, path: str) -> list[str]:
        """Take ``path`` off the list."""

    async def status(self) -> StatusView:
        """Return the daemon at a glance."""

    async def doctor(self) -> list[Check]:
        """Check what this machine has and lacks."""

    async def reload(self) -> ReloadReport:
        """Have agents and policy read anew."""

    async def shutdown(self) -> None:
        """Ask the daemon to stop."""


Connect = Callable[[], AbstractAsyncContextManager[Control]]


@asynccontextmanager
async def control_socket() -> AsyncIterator[Control]:
    """Connect to this user's daemon.

    Raises:
        SubletError: ``DAEMON_UNAVAILABLE`` where none answers.
    """
    from sublet.daemon.control.client import ControlClient
    from sublet.daemon.paths import resolve_home

    async with ControlClient(resolve_home()) as client:
        yield client


def lock_owner() -> int | None:
    """Return the pid of the daemon that holds this user's lock, whether it answers or not."""
    from sublet.daemon.lock import read_owner
    from sublet.daemon.paths import resolve_home

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
    try:
        return asyncio.run(main())
    except Exception as error:
        told = sole_error(error)
        if told is None:
            raise
        screen.fail(told)
        raise typer.Exit(exit_for(str(told.code))) from None


def sole_error(error: BaseException) -> SubletError | None:
    """Return the failure that a user is told about, also out of the groups that task groups wrap it in."""
    while isinstance(error, BaseExceptionGroup):
        known = [inner for inner in error.exceptions if isinstance(inner, SubletError)]
        error = known[0] if known else error.exceptions[0]
    return error if isinstance(error, SubletError) else None


async def resolve(control: Control, given: str) -> str:
    """Return the full delegation id for a full or abbreviated one, or for ``last``.

    Raises:
        SubletError: ``NOT_FOUND`` for none, ``INVALID_ARGUMENT`` for an abbreviation that fits several.
    """
    if DELEGATION_ID.match(given):
        return given
    if not given:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, "the id is an empty name", "Give an id, the beginning of one, or `last`."
        )
    known = await control.list_delegations(limit=LIST_LIMIT)
    if given == NEWEST:
        fitting = [view.delegation_id for view in known[:1]]
    else:
        start = given if given.startswith("dlg_") else f"dlg_{given}"
        fitting = [view.delegation_id for view in known if view.delegation_id.startswith(start)]
    match fitting:
        case [one]:
            return one
        case []:
            raise SubletError(
                LocalCode.NOT_FOUND,
                f"there is no delegation {clean_line(given, MAX_SHOWN_CHARS)!r}",
                "Run `sublet ls --all` to see them all.",
            )
        case _:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"{clean_line(given, MAX_SHOWN_CHARS)!r} fits {len(fitting)} delegations",
                "Give more characters of the id; `sublet ls --all` shows them.",
            )
