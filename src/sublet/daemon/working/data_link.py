"""How one assignment reaches the delegator's files, and reaches them again where the link was lost (DESIGN 4.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

import anyio
import asyncssh
import structlog

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Start
from sublet.workspace.carrier import Carried
from sublet.workspace.export import MountTarget
from sublet.workspace.ssh.connection import connect, connect_over
from sublet.workspace.ssh.reverse import ReverseAcceptor

DIRECT_CONNECT_SECONDS = 2.0
"""How long the direct way is tried before the delegator is asked to dial us."""
REVERSE_WAIT_SECONDS = 15.0
"""How long we wait for the delegator to dial for the first time."""
FIRST_LINK_SECONDS = 30.0
"""How long the delegator is tried for the first time: its daemon may have been killed, even twice, and be on its way
back on a busy machine. A wrong address has to be told soon, too."""
MAX_FIRST_VIEWS = 3
"""How often a view is asked for whose link broke before it was there."""
MAX_OUTAGE_SECONDS = 300.0
"""How long a lost link is tried again, if the lease lasts that long; then the work ends."""
REDIAL_SECONDS = 4.0
"""How long each try may take."""
FIRST_RETRY_SECONDS = 0.25
MAX_RETRY_SECONDS = 1.0
"""A try sends a lost packet again after one second and after three, so healing is noticed within about two."""
LAST_WORD_SECONDS = 1.0
"""A delegator that lets us in no more is asked again after this: by then it may have said why, or let us in."""

log = structlog.get_logger(__name__)

LinkState = Literal["up", "down"]


class LinkListener(Protocol):
    """Whom a link tells what becomes of it."""

    def ask_to_dial(self) -> None:
        """The delegator has to dial us."""

    def link_changed(self, state: LinkState, why: str) -> None:
        """The link was lost, or is back."""


class DataLink:
    """The connection over which one view comes, and the next one after it.

    Args:
        delegation_id: our own id and not the user that START names: that one could be somebody else's delegation.
        key: our half of the lease's credential.
        may_reverse: whether the delegator was told where to dial us.
        acceptor: where it then arrives.
        listener: is told.
    """

    def __init__(
        self,
        delegation_id: str,
        key: asyncssh.SSHKey,
        *,
        may_reverse: bool,
        acceptor: ReverseAcceptor,
        listener: LinkListener,
    ) -> None:
        self.losses = 0
        """How often the link was lost after the view was there."""
        self._id = delegation_id
        self._key = key
        self._may_reverse = may_reverse
        self._acceptor = acceptor
        self._listener = listener
        self._target: MountTarget | None = None
        self._direct = True
        self._asked = False
        self._redirected = asyncio.Event()
        self._back = asyncio.Event()
        self._connection: asyncssh.SSHClientConnection | None = None

    def redirect(self, host: str, start: Start) -> None:
        """From now on reach the delegator where ``start`` says; a link that is up stays.

        Args:
            host: where START came from, the only host that is dialled.
            start: has been checked, and names a host key.
        """
        endpoint, extension = start.mount.endpoint, start.sublet
        assert extension.host_key is not None
        self._target = MountTarget(host, endpoint.port, endpoint.user, extension.host_key)
        self._direct = extension.data_path == "direct"
        self._asked = False
        self._redirected.set()

    async def view(self, attach: Callable[[asyncssh.SSHClientConnection], Awaitable[Carried]]) -> Carried:
        """Reach the delegator and return what ``attach`` makes of the connection.

        A connection that breaks meanwhile is replaced: the delegator's daemon may have been killed just then.

        Raises:
            SubletError: as ``connect`` and ``attach``.
        """
        for _ in range(MAX_FIRST_VIEWS - 1):
            connection = await self.connect()
            try:
                return await attach(connection)
            except SubletError as error:
                if error.code != ErrorCode.MOUNT_FAILED or not connection.is_closed():
                    raise
                log.info("the link broke before the view was there", delegation_id=self._id, reason=error.message)
            self.close()
        return await attach(await self.connect())

    async def connect(self) -> asyncssh.SSHClientConnection:
        """Reach the delegator's server directly, or ask it to dial us; tries for ``FIRST_LINK_SECONDS``.

        Raises:
            SubletError: ``MOUNT_FAILED``, or ``AUTH_FAILED`` where its host key or our key is refused.
        """
        pause = FIRST_RETRY_SECONDS
        failure: SubletError | None = None
        with anyio.move_on_after(FIRST_LINK_SECONDS):
            while True:
                self._redirected.clear()
                try:
                    return await self._reach()
                except SubletError as error:
                    if error.code != ErrorCode.MOUNT_FAILED:
                        raise
                    failure = error
                with anyio.move_on_after(pause):
                    await self._redirected.wait()
                pause = min(pause * 2, MAX_RETRY_SECONDS)
        raise failure or SubletError(
            ErrorCode.MOUNT_FAILED,
            f"the delegator's files could not be reached within {FIRST_LINK_SECONDS:.0f} s",
            "Check that the delegator's SFTP port is reachable from here, or that it can reach ours.",
        )

    async def _reach(self) -> asyncssh.SSHClientConnection:
        """Try both ways once."""
        target = self._where()
        with self._acceptor.expect(self._id) as expected:
            if self._direct:
                try:
                    return self._keep(await connect(target, self._key, DIRECT_CONNECT_SECONDS))
                except SubletError as error:
                    if error.code == ErrorCode.AUTH_FAILED:
                        raise
                    log.info("no direct way to the delegator", reason=error.message)
            if not self._may_reverse:
                raise SubletError(
                    ErrorCode.MOUNT_FAILED,
                    f"the delegator's SFTP port {target.port} can't be reached at {target.host}",
                    "Let the delegator listen where this machine reaches it (sublet up --sftp), or let the "
                    "delegator reach this machine's SFTP port.",
                )
            self._listener.ask_to_dial()
            sock = await expected.wait(REVERSE_WAIT_SECONDS)
            return self._keep(await connect_over(sock, target, self._key))

    async def keep(self, view: Carried) -> SubletError:
        """Bring the link of ``view`` back whenever it is lost, and return why once it can't be brought back."""
        while True:
            await view.cut.wait()
            self.close()
            self.losses += 1
            log.warning("the link to the delegator's files was lost", delegation_id=self._id, reason=view.why_cut)
            self._listener.link_changed("down", view.why_cut)
            failure = await self._regain(view)
            if failure is not None:
                return failure
            log.info("the link to the delegator's files is back", delegation_id=self._id)
            self._listener.link_changed("up", "")
            self._back.set()

    async def restored(self, view: Carried) -> None:
        """Wait until the link of ``view`` is there, while ``keep`` runs."""
        while view.cut.is_set():
            self._back.clear()
            await self._back.wait()

    def close(self) -> None:
        """Cut the connection at once."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    async def _regain(self, view: Carried) -> SubletError | None:
        """Try until the link is back; return why it was given up, where it was."""
        pause, refused = FIRST_RETRY_SECONDS, False
        failure = SubletError(ErrorCode.MOUNT_FAILED, view.why_cut)
        self._asked = False
        with anyio.move_on_after(MAX_OUTAGE_SECONDS):
            while True:
                self._redirected.clear()
                try:
                    await view.rejoin(self._keep(await self._reach_again(pause)))
                    return None
                except SubletError as error:
                    self.close()
                    failure = error
                if failure.code == ErrorCode.AUTH_FAILED:
                    if refused:
                        return failure
                    refused, pause = True, LAST_WORD_SECONDS
                else:
                    refused = False
                with anyio.move_on_after(pause):
                    await self._redirected.wait()
                pause = min(pause * 2, MAX_RETRY_SECONDS)
        return SubletError(
            ErrorCode.MOUNT_FAILED, f"it did not come back within {MAX_OUTAGE_SECONDS:.0f} s: {failure.message}"
        )

    async def _reach_again(self, patience: float) -> asyncssh.SSHClientConnection:
        """Try the direct way, where it was one, and then wait a while for the delegator to dial."""
        target = self._where()
        with self._acceptor.expect(self._id) as expected:
            if self._direct:
                try:
                    return await connect(target, self._key, REDIAL_SECONDS)
                except SubletError as error:
                    if error.code == ErrorCode.AUTH_FAILED or not self._may_reverse:
                        raise
            if not self._asked:
                self._asked = True
                self._listener.ask_to_dial()
            return await connect_over(await expected.wait(patience), target, self._key, REDIAL_SECONDS)

    def _where(self) -> MountTarget:
        assert self._target is not None
        return self._target

    def _keep(self, connection: asyncssh.SSHClientConnection) -> asyncssh.SSHClientConnection:
        self._connection = connection
        return connection
