"""The delegator's data plane: one listener that serves every lease over SSH, and dials where it is dialled for."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import asyncssh
import structlog

from sublet import deadlines
from sublet.accepting import accept
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.sources import source_of
from sublet.stop_time import within
from sublet.tasks import alone
from sublet.workspace.export import Export, LeaseUsage
from sublet.workspace.sandbox.git_sandbox import GitSandbox
from sublet.workspace.serving.login import LeaseConnection
from sublet.workspace.serving.served_lease import OfPeer, ServedLease
from sublet.workspace.serving.slow_work import SlowWork
from sublet.workspace.serving.sockets import connected, listening
from sublet.workspace.serving.ssh_options import ssh_options
from sublet.workspace.serving.strangers import Strangers
from sublet.workspace.serving.take_up import TakeUp
from sublet.workspace.ssh.connection import FAILURES
from sublet.workspace.ssh.peek import read_preamble
from sublet.workspace.ssh.reverse import ReverseAcceptor, pack_preamble, parse_preamble
from sublet.workspace.ssh.turns import Turns

MAX_LEASES: Final = 1024
MAX_ENDED: Final = 1024
"""Leases that ran out and whose final usage nobody has asked for yet."""
MAX_TRANSFER_THREADS: Final = 4
"""Archives and bundles that are made or taken at the same time, in threads of their own, since that takes long."""
TRANSFER_STOP_SECONDS: Final = 2.0
DIAL_SECONDS: Final = 20
_PREAMBLE_SECONDS: Final = 10
_CLOSE_SECONDS: Final = 1
_ACCEPT_RETRY_SECONDS: Final = 0.1
_STRANGERS: Final = "\0strangers"
"""The one share of all who have not logged in; no peer has this name."""

log = structlog.get_logger(__name__)


class DataPlane:
    """Serves leases over SFTP: who logs in with a lease's id and key sees that lease's view (DESIGN 4.6).

    ``start`` binds, ``serve`` runs until it is cancelled, and leases are opened and revoked meanwhile. All of it
    belongs to one event loop; the SFTP sessions do their file work on it.

    Args:
        host_key: the daemon's SSH host key.
        reverse: where connections go whose caller wants to serve us; one of its own by default.
        scratch: private directory for what transfers need meanwhile, which the caller clears after a crash; by default
            the system's directory for temporary files.
        git: what git runs in for the transport of that name; by default a sandbox.
    """

    def __init__(
        self,
        host_key: asyncssh.SSHKey,
        reverse: ReverseAcceptor | None = None,
        scratch: Path | None = None,
        git: GitSandbox | None = None,
    ) -> None:
        self.reverse = reverse or ReverseAcceptor()
        self.take_up = TakeUp()
        """Leases of an earlier process that are not open yet: who logs in for one waits until that is decided."""
        self._host_key = host_key
        self._scratch = scratch or Path(tempfile.gettempdir())
        self._git = git or GitSandbox()
        self._threads = ThreadPoolExecutor(MAX_TRANSFER_THREADS, "transfer")
        self._leases: dict[str, ServedLease] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._ended: dict[str, LeaseUsage] = {}
        self._listener: socket.socket | None = None
        self._address: tuple[str, int] | None = None
        self._group: asyncio.TaskGroup | None = None
        self._strangers = Strangers()
        self._turns = Turns()
        self._greeting = asyncio.Lock()
        self._slow = SlowWork()
        self._of_peers: dict[str, OfPeer] = {}
        self._options = ssh_options(host_key)

    @property
    def host_key_line(self) -> str:
        """The public host key as an OpenSSH line without a comment."""
        exported = self._host_key.export_public_key("openssh").decode("ascii")
        return " ".join(exported.split()[:2])

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that are listened on, once ``start`` has returned."""
        if self._address is None:
            raise SubletError(LocalCode.UNAVAILABLE, "the data plane does not listen", "Start it first.")
        return self._address

    async def start(self, host: str, port: int) -> None:
        """Listen on ``host`` and ``port``, where 0 is any free port; callers wait until ``serve`` runs.

        Raises:
            SubletError: ``UNAVAILABLE`` where the address cannot be had.
        """
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            self._listener = listening(found[0][0], found[0][4])
            bound = self._listener.getsockname()
            self._address = str(bound[0]), int(bound[1])
        except OSError as exc:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"SFTP cannot listen on {host} port {port}: {exc.strerror}",
                "Choose another address or port, 0 for any free one.",
            ) from None

    async def serve(self) -> None:
        """Accept and serve connections until cancelled; then every lease is revoked and every connection cut.

        Where it fails, connections are cut and leases stay; it can be run again then, at the same address.
        """
        if self._listener is None:
            await self.start(*self.address)
            self._threads = ThreadPoolExecutor(MAX_TRANSFER_THREADS, "transfer")
            self._slow.restart()
        assert self._listener is not None
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                await self._accept(self._listener, group)
        except asyncio.CancelledError:
            self._group = None
            self.close()
            with anyio.move_on_after(within(TRANSFER_STOP_SECONDS), shield=True):
                # What they were at was halted with the leases.
                await asyncio.to_thread(self._threads.shutdown)
            self._slow.shutdown()
            raise
        finally:
            self._group = None

    def close(self) -> None:
        """Revoke every lease and stop listening. Idempotent."""
        for lease_id in list(self._leases):
            self.revoke(lease_id, "the data plane closes")
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def open(self, export: Export) -> None:
        """Serve ``export`` from now on, for its time.

        Raises:
            SubletError: as ``ServedLease``; ``CONFLICT`` for an id that is served already; ``INVALID_ARGUMENT``
                for a bad key, id or meta file; ``UNAVAILABLE`` beyond 1,024 leases.
        """
        lease_id = export.lease_id
        if lease_id in self._leases:
            raise SubletError(LocalCode.CONFLICT, f"the lease {lease_id} is served already", "Revoke it first.")
        if len(self._leases) >= MAX_LEASES:
            raise SubletError(
                LocalCode.UNAVAILABLE, f"more than {MAX_LEASES} leases are served", "Wait for some to end."
            )
        try:
            pack_preamble(lease_id)
        except ValueError:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT, "the lease id is no plain name", "Use a delegation id."
            ) from None
        loop = asyncio.get_running_loop()
        peer = export.peer or lease_id
        of_peer = self._of_peers.get(peer) or OfPeer(self._slow.one_by_one())
        self._leases[lease_id] = ServedLease(export, self._threads, self._scratch, of_peer, self._git)
        self._of_peers[peer] = of_peer
        self._ended.pop(lease_id, None)
        self._timers[lease_id] = loop.call_later(max(0.0, export.seconds), self._expire, lease_id)
        self.take_up.decide(lease_id)

    def revoke(self, lease_id: str, reason: str) -> LeaseUsage | None:
        """End a lease within this call: its key is dead, connections are cut, handles closed. Idempotent.

        Returns:
            The lease's final usage, once, also where its time ran out before; None for a lease that is not known.
        """
        self.take_up.decide(lease_id)
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            return self._ended.pop(lease_id, None)
        self._timers.pop(lease_id).cancel()
        lease.close()
        peer = lease.export.peer or lease_id
        if all((other.export.peer or other.export.lease_id) != peer for other in self._leases.values()):
            del self._of_peers[peer]
        log.info("a lease ends", lease_id=lease_id, reason=reason)
        return lease.usage

    def extend(self, lease_id: str, seconds: float) -> None:
        """Serve a lease for ``seconds`` more than it has.

        Raises:
            SubletError: ``NOT_FOUND`` for a lease that is not served (any more).
        """
        lease = self._live(lease_id, LocalCode.NOT_FOUND)
        lease.deadline += seconds
        self._timers.pop(lease_id).cancel()
        left = max(0.0, lease.deadline - time.monotonic())
        self._timers[lease_id] = asyncio.get_running_loop().call_later(left, self._expire, lease_id)

    def usage(self, lease_id: str) -> LeaseUsage | None:
        """Return what a lease's connections did so far; the object goes on counting."""
        lease = self._leases.get(lease_id)
        return lease.usage if lease is not None else self._ended.get(lease_id)

    def set_meta(self, lease_id: str, name: str, data: bytes) -> None:
        """Set the content of ``/meta/<name>`` in a lease's view.

        Raises:
            SubletError: ``NOT_FOUND`` for a lease that is not served, ``INVALID_ARGUMENT`` as ``ExportView.set_meta``.
        """
        self._live(lease_id, LocalCode.NOT_FOUND).view.set_meta(name, data)

    async def dial(self, host: str, port: int, lease_id: str) -> None:
        """Connect to an executor that cannot reach us, and serve the lease over that connection.

        The executor has to log in with the lease's key, as on a connection of its own. Returns when it has.

        Raises:
            SubletError: ``MOUNT_FAILED`` where it cannot be reached or does not log in.
        """
        self._live(lease_id, ErrorCode.MOUNT_FAILED)
        why = "it did not log in in time"
        share = self._turns.share(_STRANGERS, host, at_once=False)
        connection = LeaseConnection(share, self._leases.get, only=lease_id)
        authenticated: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            async with deadlines.timeout(DIAL_SECONDS):
                sock = await connected(host, port)
                try:
                    await asyncio.get_running_loop().sock_sendall(sock, pack_preamble(lease_id))
                    serving = self._begin(sock, connection, authenticated)
                except BaseException:
                    sock.close()
                    raise

                def ended(_: asyncio.Task[None]) -> None:
                    # a task that is cancelled before its first step can't see to this itself
                    if not connection.was_made:
                        sock.close()
                    _fail(authenticated, asyncssh.ConnectionLost("the data plane was stopped"))

                serving.add_done_callback(ended)
                await authenticated
                return
        except OSError as exc:  # a TimeoutError is one
            why = exc.strerror or why
        except asyncssh.Error as exc:
            why = exc.reason
        except BaseException:
            connection.sever()
            raise
        connection.sever()
        raise SubletError(
            ErrorCode.MOUNT_FAILED,
            f"the executor could not be served by dialling it: {why}",
            "Check that its SFTP address is reachable from here and that it still waits for this lease.",
        )

    def _begin(
        self, sock: socket.socket, connection: LeaseConnection, authenticated: asyncio.Future[None]
    ) -> asyncio.Task[None]:
        """Serve SSH on ``sock`` as long as the data plane runs.

        Raises:
            SubletError: ``MOUNT_FAILED`` where the data plane does not run, or is being stopped.
        """
        if self._group is not None:
            serving = alone("a lease", self._serve_ssh, sock, connection, authenticated)
            try:
                return self._group.create_task(serving)
            except RuntimeError:  # the group takes no more: it is being cancelled
                serving.close()
        raise SubletError(ErrorCode.MOUNT_FAILED, "the data plane is not running", "Start the daemon first.")

    def _live(self, lease_id: str, code: ErrorCode | LocalCode) -> ServedLease:
        lease = self._leases.get(lease_id)
        if lease is None or not lease.is_live():
            raise SubletError(code, "the lease is not served (any more)", "Delegate again.")
        return lease

    def _expire(self, lease_id: str) -> None:
        usage = self.revoke(lease_id, "its time is up")
        if usage is not None and len(self._ended) < MAX_ENDED:
            self._ended[lease_id] = usage

    async def _accept(self, listener: socket.socket, group: asyncio.TaskGroup) -> None:
        while True:
            try:
                sock, peer = await accept(listener)
            except OSError as exc:  # out of descriptors, or the caller is gone already
                log.warning("a connection could not be accepted", reason=exc.strerror)
                await asyncio.sleep(_ACCEPT_RETRY_SECONDS)
                continue
            self._strangers.make_room(str(peer[0]))
            self._begin_with(sock, str(peer[0]), group)

    def _begin_with(self, sock: socket.socket, source: str, group: asyncio.TaskGroup) -> None:
        authenticated: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        serving = group.create_task(alone("a lease", self._serve_caller, sock, source, authenticated))
        self._strangers.add(serving, source)
        authenticated.add_done_callback(lambda _: self._strangers.forget(serving))

        def ended(_: asyncio.Task[None]) -> None:
            # a task that is cancelled before its first step can't see to this itself
            if not authenticated.done():
                authenticated.cancel()
                sock.close()

        serving.add_done_callback(ended)

    async def _serve_caller(self, sock: socket.socket, source: str, authenticated: asyncio.Future[None]) -> None:
        """Find out what a caller wants, and serve it, or hand it to whom it wants to serve."""
        try:
            async with deadlines.timeout(_PREAMBLE_SECONDS):
                line = await read_preamble(sock)
        except (OSError, asyncio.CancelledError) as exc:
            authenticated.cancel()
            sock.close()
            if isinstance(exc, asyncio.CancelledError):
                raise
            return
        self._strangers.advance(asyncio.current_task())
        if line is None:
            share = self._turns.share(_STRANGERS, source_of(source), at_once=False)
            connection = LeaseConnection(share, self._leases.get, partial(self._knocked, asyncio.current_task()))
            await self._serve_ssh(sock, connection, authenticated)
            return
        authenticated.cancel()
        lease_id = parse_preamble(line)
        if lease_id is None:
            sock.close()
        else:
            self.reverse.deliver(lease_id, sock)

    async def _knocked(self, serving: asyncio.Task[None] | None, username: str) -> None:
        """A caller has got as far as naming a lease."""
        self._strangers.advance(serving)
        await self.take_up.wait(username)

    async def _serve_ssh(
        self, sock: socket.socket, connection: LeaseConnection, authenticated: asyncio.Future[None]
    ) -> None:
        """Serve SSH on ``sock`` until it ends; ``authenticated`` is done when the client has logged in or failed to."""
        try:
            async with self._greeting:
                await asyncio.sleep(0)  # so that only one begins in each pass of the loop
            await asyncssh.run_server(sock, server_factory=lambda: connection, options=self._options)
            if not authenticated.done() and connection.is_authenticated:
                authenticated.set_result(None)
            await connection.wait_closed()
        except FAILURES as exc:
            log.info("an SSH connection failed", reason=str(exc))
            told = isinstance(exc, OSError | asyncssh.Error)
            _fail(authenticated, exc if told else asyncssh.ProtocolError("its version is no ASCII"))
        except Exception as exc:
            # whatever a stranger's bytes bring asyncssh to raise must not take the other leases down with it
            log.warning("an SSH connection broke", exc_info=exc)
            _fail(authenticated, asyncssh.ConnectionLost("the connection broke"))
        finally:
            connection.sever()
            with contextlib.suppress(TimeoutError):
                async with deadlines.timeout(_CLOSE_SECONDS):
                    await connection.wait_closed()
            if not connection.was_made:
                sock.close()
            _fail(authenticated, asyncssh.ConnectionLost("the connection was closed"))


def _fail(authenticated: asyncio.Future[None], exc: Exception) -> None:
    if not authenticated.done():
        authenticated.set_exception(exc)
        authenticated.exception()  # nobody has to ask
