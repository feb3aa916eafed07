"""The delegator's side against a peer that a test plays: every way a delegation can go, and what is left of it."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from pathlib import Path
from types import SimpleNamespace

import anyio
import asyncssh
import pytest

from sublet.daemon.api.audit_models import MAX_BRIEF_NAMES, AuditReport
from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.lending import delegation_run, delegator, late_news
from sublet.daemon.ports.peer_link import NotConnected
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.records import DelegationRecord
from sublet.daemon.storage.resource_log import NOTHING, ResourceChange
from sublet.policy.decision import Subject
from sublet.protocol.canonical import JsonValue
from sublet.protocol.delegation import opening
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.events import Event, EventKind
from sublet.protocol.lifecycle import DelegationState
from sublet.protocol.messages import Accept, Invite
from sublet.workspace.audit.auditor import Auditor
from sublet.workspace.audit.manifest import Manifest
from sublet.workspace.audit.reporting import AuditResult
from sublet.workspace.export import ViewRules
from support.lender import Lender, lender
from support.scripted_link import BOB, UNREACHABLE, Script, accept, accepting, failing, hanging, refusing

pytestmark = pytest.mark.anyio


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Lender]:
    async with lender(tmp_path) as side:
        yield side


class SlowAuditor(Auditor):
    """Waits with every result until the test lets it go on."""

    def __init__(self, state_dir: Path) -> None:
        super().__init__(state_dir)
        self.asked = threading.Event()
        self.go_on = threading.Event()

    def result(
        self, snapshot: str, root: Path, rules: ViewRules, touched: Collection[bytes], overflow: bool
    ) -> AuditResult:
        self.asked.set()
        assert self.go_on.wait(30)
        return super().result(snapshot, root, rules, touched, overflow)


# The whole way


async def test_a_delegation_goes_all_the_way(side: Lender) -> None:
    found = await side.create("fix it\nplease")
    side.link.progress(found, "mounting")
    side.link.progress(found, text="\x1b[31mworking\x1b[0m\n")
    await side.until(found, "running")
    (side.project / "new.txt").write_text("one\n")
    side.link.done(found, "did \x1b]0;it\x07")
    view = await side.settled(found)
    assert await side.states(found) == ["created", "invited", "accepted", "started", "running", "completed"]
    assert view.state is DelegationState.COMPLETED
    assert view.description == "fix it"
    assert view.result is not None
    assert (view.result.final_summary, view.result.exit_code) == ("did ", 0)
    assert view.audit is not None
    assert (view.audit.added, view.audit.by_others) == (["new.txt"], ["new.txt"])
    assert view.error is None
    assert side.link.cancelled == []
    assert side.link.streams_open == 0
    report = await side.delegator.audit(found, patch=True)
    assert report.patch is not None
    assert "+one" in report.patch
    output = [
        e for e in (await side.journal.events.events_after(0, found)).events if e.kind == EventKind.DELEGATION_OUTPUT
    ]
    assert [event.data["text"] for event in output] == ["working\n"]


async def test_start_opens_the_view_to_the_executors_key_alone(side: Lender) -> None:
    found = await side.running()
    [start] = side.link.starts
    assert start.mount.endpoint.user == found
    assert start.mount.credential.startswith("publickey:SHA256:")
    assert start.sublet.host_key == side.data_plane.host_key_line
    assert start.sublet.remaining_seconds is not None
    assert start.sublet.remaining_seconds <= 60
    assert side.data_plane.usage(found) is not None
    side.link.done(found)
    assert (await side.settled(found)).usage.files_touched == 0


async def test_paths_that_a_lease_changed_are_not_kept_after_it(side: Lender) -> None:
    """What was served hangs together in cycles, which Python keeps until its collector comes by."""
    found = await side.running()
    usage = side.data_plane.usage(found)
    assert usage is not None
    paths = usage.touched.setdefault("workspace", set())
    paths.update(b"%d" % number for number in range(9))
    side.link.done(found)
    assert (await side.settled(found)).usage.files_touched == 9
    assert not paths
    assert usage.files_touched == 9


async def test_a_plain_awcp_peer_gets_a_key_that_opens_the_view(side: Lender) -> None:
    side.link.answer = accepting(public_key=None)
    found = await side.running()
    key = asyncssh.import_private_key(side.link.starts[0].mount.credential)
    host, port = side.data_plane.address
    options = {"username": found, "client_keys": [key], "known_hosts": None, "config": None}
    async with asyncssh.connect(host, port, **options) as connection, connection.start_sftp_client() as sftp:
        assert "hello.txt" in await sftp.listdir("/workspace")
        async with sftp.open("/meta/task.json") as file:
            assert "do it" in str(await file.read())
        side.link.progress(found, text="half done")
        side.link.error(found, ErrorCode.TASK_FAILED, "gave up")
        await side.settled(found)
        with pytest.raises((asyncssh.Error, OSError)):
            await sftp.listdir("/workspace")


# INVITE and ACCEPT


async def test_a_refusal_is_shown_as_the_peers_and_leaves_nothing(side: Lender) -> None:
    side.link.answer = refusing(ErrorCode.DEP_MISSING, "no \x1b[1msshfs")
    view = await side.settled(await side.create())
    assert view.state is DelegationState.ERROR
    assert view.error is not None
    assert (view.error.code, view.error.message, view.error.hint) == ("DEP_MISSING", "bob: no sshfs", "ask later")
    assert view.audit is None
    assert view.audit_error is None
    assert side.link.cancelled == []
    assert side.link.starts == []
    with pytest.raises(SubletError, match="before any access") as refused:
        await side.delegator.audit(view.delegation_id, patch=False)
    assert refused.value.code is LocalCode.NOT_FOUND


@pytest.mark.parametrize(
    ("asked", "constraints", "mode", "most"),
    [
        ("ro", {"accepted_access_mode": "rw", "max_ttl_seconds": 600}, "ro", 60),
        ("rw", {"accepted_access_mode": "ro", "max_ttl_seconds": 5}, "ro", 5),
        ("rw", {"accepted_access_mode": None, "max_ttl_seconds": None}, "rw", 60),
    ],
)
async def test_accept_narrows_and_never_widens(
    side: Lender, asked: str, constraints: dict[str, object], mode: str, most: int
) -> None:
    side.link.answer = accepting(**constraints)
    found = await side.running(access_mode=asked)
    [start] = side.link.starts
    view = await side.delegator.view(found)
    assert start.lease.access_mode == view.access_mode == mode
    assert start.sublet.remaining_seconds in (most - 1, most)
    assert view.ttl_seconds == most
    assert view.remaining_seconds is not None
    assert view.remaining_seconds <= most
    await side.delegator.cancel(found, "enough")
    await side.settled(found)


async def test_an_executor_that_accepts_without_enforcing_what_is_required_gets_nothing(side: Lender) -> None:
    side.link.answer = accepting(sublet={"sandbox_enforced": ["cwd_only", "an\x1b[1mything"]})
    view = await side.settled(await side.create(require_enforced=["memory", "cwd_only"]))
    assert side.link.invites[0].sublet.require_enforced == ["memory", "cwd_only"]
    assert view.state is DelegationState.ERROR
    assert view.error is not None
    assert view.error.code == "DECLINED"
    assert "requires: memory; it was given no access" in view.error.message
    assert view.error.hint.startswith("It enforces: anything, cwd_only.")
    assert not view.error.from_peer
    assert side.link.starts == []
    assert view.expires_at is None
    assert side.link.cancelled == [f"tsk_{view.delegation_id}"]


async def test_what_the_executor_enforces_is_shown(side: Lender) -> None:
    side.link.answer = accepting(max_ttl_seconds=5, sublet={"sandbox_enforced": ["memory", "cwd_only"]})
    found = await side.running(require_enforced=["memory"])
    view = await side.delegator.view(found)
    assert view.sandbox_enforced == ["cwd_only", "memory"]
    assert (view.requested_ttl_seconds, view.ttl_seconds) == (60, 5)
    side.link.done(found)
    await side.settled(found)


RSA = asyncssh.generate_private_key("ssh-rsa", key_size=2048).export_public_key().decode()


@pytest.mark.parametrize("key", ["", "ssh-ed25519", "ssh-ed25519 AAAA", "\0\n", "-----BEGIN RSA KEY-----", RSA])
async def test_a_key_that_is_none_ends_it_before_anything_is_opened(side: Lender, key: str) -> None:
    side.link.answer = accepting(public_key=key)
    view = await side.settled(await side.create())
    assert view.error is not None
    assert view.error.code == "AUTH_FAILED"
    assert side.link.starts == []
    assert side.link.cancelled == [f"tsk_{view.delegation_id}"]
    assert "started" not in await side.states(view.delegation_id)


@pytest.mark.parametrize("path", ["", "mounts/x", "./x", "~/x"])
async def test_a_relative_mount_point_is_denied(side: Lender, path: str) -> None:
    side.link.answer = accepting(mount_point=path)
    view = await side.settled(await side.create())
    assert view.error is not None
    assert view.error.code == "MOUNTPOINT_DENIED"
    assert side.link.cancelled == [f"tsk_{view.delegation_id}"]


async def test_an_offline_peer_is_waited_for_only_where_asked(side: Lender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "RETRY_PEER_SECONDS", 0.01)
    side.link.answer = failing(UNREACHABLE)
    view = await side.settled(await side.create())
    assert view.error is not None
    assert view.error.code == "PEER_UNREACHABLE"
    side.link.answer = failing(UNREACHABLE, UNREACHABLE, then=accepting())
    found = await side.create(wait_for_peer=True)
    side.link.done(found)
    assert (await side.settled(found)).state is DelegationState.COMPLETED
    assert len([i for i in side.link.invites if i.delegation_id == found]) == 3
    events = (await side.journal.events.events_after(0, found)).events
    shown = [e.data["condition"] for e in events if e.kind == EventKind.DELEGATION_CONDITION]
    assert isinstance(shown[0], dict)
    assert shown[0]["kind"] == "waiting_for_peer"


async def test_other_failures_are_not_waited_out(side: Lender) -> None:
    side.link.answer = failing(SubletError(LocalCode.KEY_CHANGED, "bob has another key"))
    view = await side.settled(await side.create(wait_for_peer=True))
    assert view.error is not None
    assert view.error.code == "KEY_CHANGED"


async def test_a_directory_that_can_not_be_lent_is_never_offered(side: Lender) -> None:
    (side.project / "big.bin").write_bytes(b"\0" * 2048)
    side.limits = type(side.limits)(max_total_bytes=1024)
    view = await side.settled(await side.create())
    assert view.error is not None
    assert view.error.code == "WORKSPACE_TOO_LARGE"
    assert side.link.invites == []


async def test_a_directory_that_becomes_a_link_is_not_lent(side: Lender, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()

    async def swap(invite: Invite) -> Accept:
        side.project.rename(tmp_path / "moved")
        side.project.symlink_to(secret)
        return accept(invite)

    side.link.answer = swap
    view = await side.settled(await side.create())
    assert view.error is not None
    assert view.error.code == "WORKSPACE_INVALID"
    assert side.link.starts == []


# Ends that race


async def test_cancelling_a_running_delegation_cuts_access_and_tells_the_peer(side: Lender) -> None:
    found = await side.running()
    view = await side.delegator.cancel(found, "cancelled by human")
    assert view.state is DelegationState.CANCELLED
    assert view.error is not None
    assert view.error.code == "CANCELLED"
    assert side.data_plane.usage(found) is None
    again = await side.delegator.cancel(found, "cancelled twice")
    assert again.error == view.error
    settled = await side.settled(found)
    assert settled.audit is not None
    assert side.link.cancelled == [f"tsk_{found}"]
    assert side.link.streams_open == 0
    assert (await side.delegator.cancel(found, "cancelled after the end")).state is DelegationState.CANCELLED


async def test_access_is_cut_before_the_link_has_let_go(side: Lender) -> None:
    found = await side.running()
    side.link.closes_on = asyncio.Event()
    view = await side.delegator.cancel(found, "enough")
    assert view.state is DelegationState.CANCELLED
    assert side.data_plane.usage(found) is None
    assert side.link.streams_open == 1
    side.link.closes_on.set()
    await side.settled(found)


async def test_two_cancels_at_once_are_one(side: Lender) -> None:
    found = await side.running()
    views: list[DelegationView] = []

    async def cancel(why: str) -> None:
        views.append(await side.delegator.cancel(found, why))

    async with anyio.create_task_group() as group:
        for why in ("first", "second", "third"):
            group.start_soon(cancel, why)
    assert {view.error.message for view in views if view.error} == {"first"}
    await side.settled(found)
    assert side.link.cancelled == [f"tsk_{found}"]


async def test_a_busy_peer_is_asked_again_when_it_says(side: Lender) -> None:
    busy = SubletError(LocalCode.PEER_UNREACHABLE, "bob answers with HTTP 503", retry_after_seconds=1)
    side.link.answer = failing(busy, then=accepting())
    found = await side.running()
    assert len(side.link.invites) == 2
    page = await side.journal.events.events_after(0, found, limit=100)
    told = [event.data["condition"] for event in page.events if event.kind == "delegation_condition"]
    assert [one["kind"] for one in told if isinstance(one, dict)] == ["retrying"]
    side.link.done(found)
    await side.settled(found)


async def test_a_peer_that_restarts_is_tried_again_for_a_moment(side: Lender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "FIRST_RECONNECT_SECONDS", 0.01)
    gone = NotConnected(LocalCode.PEER_UNREACHABLE, "bob at http://127.0.0.1:9 can't be reached: refused")
    side.link.answer = failing(gone, gone, then=accepting())
    found = await side.running()
    assert len(side.link.invites) == 3
    page = await side.journal.events.events_after(0, found, limit=100)
    told = [event.data["condition"] for event in page.events if event.kind == "delegation_condition"]
    assert [one["kind"] for one in told if isinstance(one, dict)] == ["retrying"]
    side.link.done(found)
    await side.settled(found)


async def test_a_peer_that_nobody_answers_for_is_given_up(side: Lender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "FIRST_RECONNECT_SECONDS", 0.01)
    monkeypatch.setattr(opening, "RECONNECT_PEER_SECONDS", 0.05)
    gone = NotConnected(LocalCode.PEER_UNREACHABLE, "bob can't be reached: refused")
    side.link.answer = failing(*[gone] * 20)
    view = await side.settled(await side.create())
    assert view.error is not None
    assert view.error.code == LocalCode.PEER_UNREACHABLE
    # The waits grow, so that the bound is met after a few tries.
    assert 1 < len(side.link.invites) < 5


async def test_a_busy_peer_that_wants_too_much_patience_is_given_up(side: Lender) -> None:
    busy = SubletError(LocalCode.PEER_UNREACHABLE, "bob answers with HTTP 503", retry_after_seconds=600)
    side.link.answer = failing(busy)
    view = await side.settled(await side.create())
    assert view.error is not None
    assert view.error.retry_after_seconds == 600
    assert len(side.link.invites) == 1


async def test_cancelling_while_the_peer_is_asked(side: Lender) -> None:
    side.link.answer = hanging
    found = await side.create()
    await side.link.invited.wait()
    assert (await side.delegator.cancel(found, "enough")).state is DelegationState.CANCELLED
    assert (await side.settled(found)).audit is None
    assert side.link.cancelled == [""], "what the peer has of it is known by the delegation only"


async def test_an_accept_that_comes_with_the_cancel_is_taken_back(side: Lender) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def late(invite: Invite) -> Accept:
        asked.set()
        with anyio.CancelScope(shield=True):
            await answer.wait()
        return accept(invite)

    side.link.answer = late
    found = await side.create()
    await asked.wait()
    assert (await side.delegator.cancel(found, "enough")).state is DelegationState.CANCELLED
    answer.set()
    await side.settled(found)
    assert side.link.cancelled == [f"tsk_{found}"]
    assert side.link.starts == []


async def test_a_caller_who_gives_up_does_not_stop_the_cancel_half_way(side: Lender) -> None:
    found = await side.running()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await side.delegator.cancel(found, "enough")
    assert (await side.settled(found)).state is DelegationState.CANCELLED


async def test_done_stands_whatever_comes_while_it_is_audited(tmp_path: Path) -> None:
    auditor = SlowAuditor(tmp_path / "state")
    async with lender(tmp_path, auditor) as side:
        found = await side.running(ttl=1)
        side.link.done(found, "in time")
        await asyncio.to_thread(auditor.asked.wait, 10)
        view = await side.delegator.cancel(found, "too late")
        assert view.state is DelegationState.RUNNING
        assert view.condition is not None
        assert view.condition.kind == "ending"
        assert view.remaining_seconds is None
        assert side.data_plane.usage(found) is None
        await asyncio.sleep(1.1)  # the lease would be over by now
        assert (await side.delegator.view(found)).state is DelegationState.RUNNING
        auditor.go_on.set()
        view = await side.settled(found)
        assert view.state is DelegationState.COMPLETED
        assert view.result is not None
        assert view.result.final_summary == "in time"


async def test_a_lease_ends_though_the_peer_stays_silent(side: Lender) -> None:
    found = await side.create(ttl=1)
    await side.link.started.wait()
    view = await side.settled(found)
    assert view.state is DelegationState.EXPIRED
    assert view.error is not None
    assert view.error.code == "EXPIRED"
    assert view.remaining_seconds is None
    assert side.link.cancelled == [f"tsk_{found}"]
    assert view.audit is not None


async def test_time_that_passes_before_the_lease_ends_it_too(side: Lender) -> None:
    side.link.answer = hanging
    view = await side.settled(await side.create(ttl=1))
    assert view.state is DelegationState.EXPIRED
    assert view.error is not None
    assert "before the peer could begin" in view.error.message


async def test_a_reader_finds_a_lease_expired_and_ends_it_even_if_no_timer_did(
    side: Lender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case C18: expiry is computed on every read, here after the machine has slept through the end of the lease."""
    found = await side.running(ttl=600)
    monkeypatch.setattr(delegator, "time", SimpleNamespace(time=lambda: time.time() + 601))
    assert await side.delegator.list(limit=10, active=True) == []
    view = await side.settled(found)
    assert view.state is DelegationState.EXPIRED
    assert side.link.cancelled == [f"tsk_{found}"]
    second = await side.create()
    side.link.done(second)
    assert (await side.settled(second)).state is DelegationState.COMPLETED


async def test_peers_own_ends(side: Lender) -> None:
    for code, state in (
        (ErrorCode.TASK_FAILED, DelegationState.ERROR),
        (ErrorCode.START_EXPIRED, DelegationState.ERROR),
        (ErrorCode.EXPIRED, DelegationState.EXPIRED),
        (ErrorCode.CANCELLED, DelegationState.CANCELLED),
    ):
        found = await side.create()
        side.link.error(found, code, "\x07as it is")
        view = await side.settled(found)
        assert view.state is state
        assert view.error is not None
        assert (view.error.code, view.error.message) == (str(code), "bob: as it is")
    assert side.link.cancelled == []


@pytest.mark.parametrize(
    ("step", "code"),
    [
        (SubletError(ErrorCode.AUTH_FAILED, "bob's answer is not bob's"), "AUTH_FAILED"),
        (RuntimeError("a defect"), "INTERNAL"),
        (Script.END, "INTERNAL"),
    ],
)
async def test_a_link_that_breaks_for_good_ends_it(side: Lender, step: Exception | Script, code: str) -> None:
    found = await side.running()
    side.link.say(found, step)
    view = await side.settled(found)
    assert view.error is not None
    assert view.error.code == code
    assert "defect" not in view.error.message
    assert side.link.cancelled == [f"tsk_{found}"]
    assert view.audit is not None


async def test_nothing_depends_on_whether_the_peer_hears_of_the_end(
    side: Lender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delegation_run, "CANCEL_PEER_SECONDS", 0.05)
    for failure in (UNREACHABLE, RuntimeError("a defect"), None):
        side.link.cancel_fails, side.link.cancel_hangs = failure, failure is None
        found = await side.running()
        await side.delegator.cancel(found, "enough")
        assert (await side.settled(found)).audit is not None


async def test_a_peer_that_is_heard_again_is_told_of_the_end(side: Lender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_news, "FIRST_TELL_SECONDS", 0.02)
    side.link.cancel_fails = UNREACHABLE
    found = await side.running()
    await side.delegator.cancel(found, "enough")
    await side.settled(found)
    tried = len(side.link.cancelled)
    with anyio.fail_after(10):
        while len(side.link.cancelled) < tried + 2:
            await anyio.sleep(0.01)
        side.link.cancel_fails = None
        while await side.journal.resources.open_resources(found):
            await anyio.sleep(0.01)
    assert set(side.link.cancelled) == {f"tsk_{found}"}


# Waiting for a directory


async def waits(side: Lender, delegation_id: str) -> DelegationView:
    """Wait until a delegation tells what it waits for."""
    with anyio.fail_after(10):
        while (view := await side.delegator.view(delegation_id)).condition is None:
            await side.journal.events.wait_for_events(view.cursor, delegation_id, timeout=1)
    return view


async def test_overlapping_leases_queue_and_say_so(side: Lender) -> None:
    first = await side.running()
    second = await side.create()
    await waits(side, second)
    third = await side.create()
    view = await waits(side, third)
    assert view.condition is not None
    assert (view.condition.kind, view.condition.position) == ("queued", 2)
    assert [invite.delegation_id for invite in side.link.invites] == [first]
    view = await side.delegator.cancel(second, "no longer needed")
    assert (view.state, view.condition) == (DelegationState.CANCELLED, None)
    await side.settled(second)
    side.link.done(first)
    await side.settled(first)
    side.link.done(third)
    assert (await side.settled(third)).state is DelegationState.COMPLETED


async def test_the_next_lease_begins_only_when_the_last_one_is_audited(tmp_path: Path) -> None:
    auditor = SlowAuditor(tmp_path / "state")
    async with lender(tmp_path, auditor) as side:
        first, second = await side.running(), await side.create()
        await side.delegator.cancel(first, "enough")
        await asyncio.to_thread(auditor.asked.wait, 10)
        assert [invite.delegation_id for invite in side.link.invites] == [first]
        auditor.go_on.set()
        side.link.done(second)
        assert (await side.settled(second)).state is DelegationState.COMPLETED


# The reverse way


async def test_an_executor_is_dialled_once_however_often_it_asks(side: Lender) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        side.link.answer = accepting(sublet={"reverse": {"port": server.getsockname()[1]}})
        found = await side.create()
        for _ in range(5):
            side.link.progress(found, "need_reverse")
        loop = asyncio.get_running_loop()
        caller, _ = await loop.sock_accept(server)
        assert (await loop.sock_recv(caller, 200)).startswith(b"SUBLET-REVERSE " + found.encode())
        side.link.progress(found, "running")
        await side.until(found, "running")
        with pytest.raises(BlockingIOError):
            server.accept()
        # DONE does not wait for the dial, which is still waiting for a login.
        side.link.done(found)
        assert (await side.settled(found)).state is DelegationState.COMPLETED
        caller.close()


async def test_an_executor_that_can_not_be_dialled_ends_it(side: Lender) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    side.link.answer = accepting(sublet={"reverse": {"port": port}})
    found = await side.create()
    side.link.progress(found, "need_reverse")
    view = await side.settled(found)
    assert view.error is not None
    assert view.error.code == "MOUNT_FAILED"
    assert side.link.cancelled == [f"tsk_{found}"]


async def test_who_did_not_offer_to_be_dialled_is_not(side: Lender) -> None:
    found = await side.create()
    side.link.progress(found, "need_reverse")
    side.link.done(found)
    assert (await side.settled(found)).state is DelegationState.COMPLETED


# The audit


class BrokenAuditor(Auditor):
    failure: Exception = SubletError(LocalCode.UNAVAILABLE, "the disk is full", "Free some space.")

    def result(
        self, snapshot: str, root: Path, rules: ViewRules, touched: Collection[bytes], overflow: bool
    ) -> AuditResult:
        raise self.failure


@pytest.mark.parametrize("failure", [BrokenAuditor.failure, RuntimeError("a defect")])
async def test_an_audit_that_fails_loses_nothing_and_is_told(tmp_path: Path, failure: Exception) -> None:
    auditor = BrokenAuditor(tmp_path / "state")
    auditor.failure = failure
    async with lender(tmp_path, auditor) as side:
        found = await side.running()
        side.link.done(found)
        view = await side.settled(found)
        assert view.state is DelegationState.COMPLETED
        assert view.result is not None
        assert view.audit is None
        assert view.audit_error is not None
        with pytest.raises(SubletError, match="has no audit: the"):
            await side.delegator.audit(found, patch=False)
        events = (await side.journal.events.events_after(0, found)).events
        [told] = [event.data for event in events if event.kind == EventKind.DELEGATION_AUDIT]
        assert told["message"] == view.audit_error.message


async def test_without_a_baseline_nothing_is_lent(tmp_path: Path) -> None:
    class Blind(Auditor):
        def baseline(self, root: Path, rules: ViewRules, tell: Callable[[Manifest], None] = lambda _: None) -> str:
            raise SubletError(ErrorCode.DEP_MISSING, "git is not there", "Install git.")

    async with lender(tmp_path, Blind(tmp_path / "state")) as side:
        view = await side.settled(await side.create())
        assert view.error is not None
        assert view.error.code == "DEP_MISSING"
        assert side.link.invites == []


# Asking again


async def test_the_same_key_finds_the_same_delegation(side: Lender) -> None:
    first = await side.create(idempotency_key="k")
    assert await side.create(idempotency_key="k") == first
    other = await side.create(idempotency_key="k", caller=Subject("mcp", "x"))
    assert other != first
    with pytest.raises(SubletError) as refused:
        await side.create("something else", idempotency_key="k")
    assert refused.value.code is LocalCode.CONFLICT


async def test_the_same_key_at_once_makes_one_delegation(side: Lender) -> None:
    found: list[str] = []

    async def create() -> None:
        found.append(await side.create(idempotency_key="k"))

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(create)
    assert len(found) == 8
    assert len(set(found)) == 1
    assert len(await side.journal.list_delegations()) == 1


async def test_a_caller_who_gives_up_finds_what_it_made(side: Lender) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await side.create(idempotency_key="k")
    found = await side.create(idempotency_key="k")
    side.link.done(found)
    assert (await side.settled(found)).state is DelegationState.COMPLETED
    assert len(await side.journal.list_delegations()) == 1


async def test_there_is_a_bound_on_what_is_under_way(side: Lender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegator, "MAX_RUNNING", 2)
    first, second = await side.running(), await side.create()
    with pytest.raises(SubletError) as refused:
        await side.create()
    assert refused.value.code is LocalCode.UNAVAILABLE
    await side.delegator.cancel(second, "enough")
    side.link.done(first)
    await side.settled(first)
    await side.settled(second)
    third = await side.create()
    side.link.done(third)
    await side.settled(third)


async def test_a_list_names_the_first_files_of_each_audit_alone(side: Lender) -> None:
    found = await side.running()
    side.link.done(found)
    await side.settled(found)
    record = await side.journal.require_delegation(found)
    names = [f"file_{number}" for number in range(1_000)]
    audit = AuditReport(added=names, counts={"added": 1_000})
    await side.journal.save_delegation(record.model_copy(update={"audit": audit}))
    [view] = await side.delegator.list(limit=10, active=False)
    assert view.audit is not None
    assert (view.audit.added, view.audit.counts) == (names[:MAX_BRIEF_NAMES], {"added": 1_000})
    assert (await side.delegator.view(found)).audit == audit


async def test_lists_are_bounded_whatever_is_asked(side: Lender) -> None:
    side.link.answer = refusing()
    made = [await side.create() for _ in range(3)]
    for one in made:
        await side.settled(one)
    assert [v.delegation_id for v in await side.delegator.list(limit=2, active=False)] == made[:0:-1]
    assert len(await side.delegator.list(limit=-1, active=False)) == 1
    assert len(await side.delegator.list(limit=10**9, active=False)) == 3
    with pytest.raises(SubletError) as refused:
        await side.delegator.view("dlg_none")
    assert refused.value.code is LocalCode.NOT_FOUND


async def test_a_removed_peers_leases_end(side: Lender) -> None:
    side.link.answer = accepting()
    mine = await side.running()
    await side.delegator.end_peer(b"c" * 32, "carol was removed")
    assert (await side.delegator.view(mine)).state is DelegationState.RUNNING
    await side.delegator.end_peer(BOB.public_key, "bob was removed")
    view = await side.settled(mine)
    assert view.error is not None
    assert view.error.message == "bob was removed"


# The stop of the daemon, and a journal that fails


async def test_a_stop_ends_what_runs_and_tells_the_peer(tmp_path: Path) -> None:
    async with lender(tmp_path) as side:
        running, queued = await side.running(), await side.create()
    assert side.link.cancelled == [f"tsk_{running}"]
    async with lender(tmp_path) as after:
        for found in (running, queued):
            view = await after.settled(found)
            assert view.state is DelegationState.CANCELLED
            assert view.error is not None
            assert "the daemon was stopped" in view.error.message
    with pytest.raises(SubletError) as refused:
        await side.create()
    assert refused.value.code is LocalCode.UNAVAILABLE


async def test_a_stop_does_not_wait_for_a_long_audit_and_loses_nothing_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delegator, "STOP_SECONDS", 0.2)
    auditor = SlowAuditor(tmp_path / "state")
    try:
        async with lender(tmp_path, auditor) as side:
            done = await side.running()
            side.link.done(done, "in time")
            await asyncio.to_thread(auditor.asked.wait, 10)
    finally:
        auditor.go_on.set()
    async with lender(tmp_path) as after:
        record = await after.record(done)
        assert (record.settled, record.audit) == (False, None)
        assert record.result is not None
        assert record.result.final_summary == "in time"


class FailingJournal(Journal):
    """Fails on command, as a full disk makes it."""

    broken = False

    async def save_delegation(
        self,
        record: DelegationRecord,
        kind: EventKind | None = None,
        data: Mapping[str, JsonValue] | None = None,
        held: ResourceChange = NOTHING,
    ) -> Event | None:
        if self.broken:
            raise SubletError(LocalCode.UNAVAILABLE, "the store failed: disk is full", "Free some space.")
        return await super().save_delegation(record, kind, data, held)


async def test_access_is_cut_even_where_that_can_not_be_written_down(tmp_path: Path) -> None:
    async with lender(tmp_path, journal=FailingJournal) as side:
        assert isinstance(side.journal, FailingJournal)
        found = await side.running()
        side.journal.broken = True
        await side.delegator.cancel(found, "enough")
        assert side.data_plane.usage(found) is None
        await side.delegator.wait(found, 10)
        assert side.locks.holders() == ()
        with pytest.raises(SubletError) as refused:
            await side.create()
        assert refused.value.code is LocalCode.UNAVAILABLE
        # One that can't be journalled takes nobody else down.
        side.journal.broken = False
        second = await side.create()
        side.link.done(second)
        assert (await side.settled(second)).state is DelegationState.COMPLETED


async def test_a_view_that_ran_out_first_does_not_hide_the_expiry(side: Lender) -> None:
    found = await side.running()
    side.data_plane.revoke(found, "its time is up")
    side.link.progress(found, text="still here")
    side.link.done(found)
    assert (await side.settled(found)).state is DelegationState.COMPLETED
