"""One SSH connection: whose key gets in, when that stops to hold, and what a caller may send before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import asyncssh
import pytest

from sublet.workspace.export import ExportLimits
from sublet.workspace.serving import login
from sublet.workspace.serving.archive_session import ArchiveSession
from sublet.workspace.serving.login import MAX_BLOCKED_INPUT, MAX_LOGIN_ATTEMPTS, MAX_STRANGER_BYTES, LeaseConnection
from sublet.workspace.serving.served_lease import ServedLease
from sublet.workspace.sftp.session import SftpSession
from sublet.workspace.ssh.turns import Turns
from support.sftp_client import export

KEY = asyncssh.generate_private_key("ssh-ed25519")
OTHER = asyncssh.generate_private_key("ssh-ed25519")
ID = "dlg_0123456789abcdef0123456789abcdef"


class Wire:
    """What asyncssh gives to a server object, as far as that uses it."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.aborted = False
        self.admits: Callable[[int], bool] = lambda size: True
        self.data_received: Callable[[bytes], object] = bool
        self.pause_writing: Callable[[], object] = bool
        self.resume_writing: Callable[[], object] = bool

    def get_extra_info(self, name: str) -> str:
        assert name == "username"
        return self.user

    def create_server_channel(self, **_: object) -> object:
        return object()

    def abort(self) -> None:
        self.aborted = True


class Caller:
    """A connection of somebody, whose bytes the test counts as they come."""

    def __init__(self, leases: dict[str, ServedLease], user: str = ID, *, only: str | None = None) -> None:
        self.wire = Wire(user)
        self.server = LeaseConnection(Turns().share("", "", at_once=False), leases.get, only=only)

    def comes(self) -> Caller:
        self.server.connection_made(cast("asyncssh.SSHServerConnection", self.wire))
        return self

    def knows(self, key: asyncssh.SSHKey) -> bool:
        return self.server.validate_public_key(self.wire.user, key)

    def logs_in(self) -> Caller:
        assert self.knows(KEY)
        self.server.auth_completed()
        return self


@pytest.fixture(autouse=True)
def untuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what is asked about the input of a connection, as there is no transport that would ask."""

    def tune(wire: Wire, admits: Callable[[int], bool], share: object) -> bool:
        wire.admits = admits
        return True

    monkeypatch.setattr(login, "tune", tune)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def leases(tmp_path: Path, threads: ThreadPoolExecutor) -> Iterator[dict[str, ServedLease]]:
    """One lease that is served to ``KEY``, two connections at once and two channels in each."""
    (tmp_path / "lent").mkdir()
    limits = ExportLimits(max_connections=2, max_channels=2)
    lease = ServedLease(export(tmp_path / "lent", KEY, limits=limits), threads, tmp_path)
    yield {ID: lease}
    lease.close()


def test_the_key_of_the_lease_that_the_name_names_gets_in(leases: dict[str, ServedLease]) -> None:
    assert Caller(leases).comes().knows(KEY)
    assert not Caller(leases).comes().knows(OTHER)
    for name in ("", "root", "dlg_" + "f" * 32):
        assert not Caller(leases, name).comes().knows(KEY)


def test_a_connection_that_was_dialled_for_a_lease_is_for_that_alone(leases: dict[str, ServedLease]) -> None:
    assert Caller(leases, only=ID).comes().knows(KEY)
    assert not Caller(leases, only="dlg_" + "0" * 32).comes().knows(KEY)


def test_only_plain_keys_are_offered(leases: dict[str, ServedLease]) -> None:
    server = Caller(leases).server
    assert server.public_key_auth_supported()
    assert not server.password_auth_supported()
    assert not server.kbdint_auth_supported()
    assert not server.validate_ca_key(ID, KEY)


def test_a_guesser_is_cut(leases: dict[str, ServedLease]) -> None:
    caller = Caller(leases).comes()
    for _ in range(MAX_LOGIN_ATTEMPTS - 1):
        assert not caller.knows(OTHER)
        assert not caller.wire.aborted
    assert not caller.knows(OTHER)
    assert caller.wire.aborted


@pytest.mark.anyio
async def test_whom_to_let_in_is_certain_before_anybody_is_asked_for_a_key() -> None:
    waited: list[str] = []

    async def decided(user: str) -> None:
        waited.append(user)

    server = LeaseConnection(Turns().share("", "", at_once=False), lambda _: None, decided)
    assert await server.begin_auth(ID)
    assert waited == [ID]


def test_a_lease_that_ends_or_fills_up_between_key_and_login_lets_nobody_in(leases: dict[str, ServedLease]) -> None:
    first, second, third = (Caller(leases).comes() for _ in range(3))
    for caller in (first, second, third):
        assert caller.knows(KEY)
    for caller in (first, second, third):
        caller.server.auth_completed()
    assert [caller.server.is_authenticated for caller in (first, second, third)] == [True, True, False]
    assert third.wire.aborted
    first.server.connection_lost(None)
    late = Caller(leases).comes()
    assert late.knows(KEY)
    leases[ID].close()
    late.server.auth_completed()
    assert (late.server.is_authenticated, late.wire.aborted) == (False, True)


@pytest.mark.anyio
async def test_channels_are_those_of_the_leases_transport_and_counted(
    tmp_path: Path, threads: ThreadPoolExecutor, leases: dict[str, ServedLease]
) -> None:
    stranger = Caller(leases).comes()
    assert stranger.server.session_requested() is False
    caller = Caller(leases).comes().logs_in()
    opened = [caller.server.session_requested() for _ in range(3)]
    assert [isinstance(one, tuple) and isinstance(one[1], SftpSession) for one in opened] == [True, True, False]
    archive = ServedLease(export(tmp_path / "lent", KEY, transport="archive"), threads, tmp_path)
    try:
        found = Caller({ID: archive}).comes().logs_in().server.session_requested()
        assert isinstance(found, tuple)
        assert isinstance(found[1], ArchiveSession)
    finally:
        archive.close()
    leases[ID].close()
    assert caller.server.session_requested() is False
    assert caller.wire.aborted


def test_who_has_not_logged_in_may_send_little(leases: dict[str, ServedLease]) -> None:
    caller = Caller(leases).comes()
    admits = caller.wire.admits
    assert admits(MAX_STRANGER_BYTES)
    assert not caller.wire.aborted
    assert not admits(1)
    assert caller.wire.aborted
    assert not admits(1), "what was cut takes nothing more"


def test_who_reads_nothing_may_send_little_more(leases: dict[str, ServedLease]) -> None:
    caller = Caller(leases).comes().logs_in()
    admits = caller.wire.admits
    for _ in range(3):
        assert admits(MAX_BLOCKED_INPUT), "who reads may send without end"
    caller.wire.pause_writing()
    assert admits(MAX_STRANGER_BYTES)
    caller.wire.resume_writing()
    assert admits(1)
    caller.wire.pause_writing()
    # The lease's own bound of what may wait in its connections comes first, or that of the connection.
    assert not admits(MAX_BLOCKED_INPUT + 1)
    assert caller.wire.aborted


def test_a_connection_that_was_cut_before_it_was_made_is_ended_as_it_comes(leases: dict[str, ServedLease]) -> None:
    caller = Caller(leases)
    caller.server.sever()
    assert not caller.server.was_made
    caller.comes()
    assert caller.wire.aborted


def test_who_leaves_makes_room(leases: dict[str, ServedLease]) -> None:
    lease = leases[ID]
    callers = [Caller(leases).comes().logs_in() for _ in range(2)]
    assert not lease.has_room()
    callers[0].server.connection_lost(None)
    assert lease.has_room()
    assert lease.usage.connections == 2, "how many there have been"
