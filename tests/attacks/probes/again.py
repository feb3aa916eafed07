"""What is tried again, waited for or looked through while a peer is away, breaks off, floods or says nonsense."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import anyio
import pytest

from a2a_client import test_link
from a2a_server import test_cancel, test_plain_clients
from attacks.kit.as_probe import throwing
from attacks.kit.neighbour import HOST
from attacks.probe import CostProbe, FailureProbe, Probe
from daemon.audit_log import test_log
from daemon.control import test_control, test_service
from daemon.lending import test_delegator, test_steering
from daemon.rooms import test_conversations, test_work_talk
from daemon.web_access import test_logins
from daemon.working import test_data_link, test_executor, test_follow_ups
from messaging.builtins import test_identity
from messaging.delivery import test_idle
from messaging.membership import test_forgetting
from sublet.a2a_client.text_link import A2ATextLink
from sublet.daemon.api.conversations import ConversationMessage
from sublet.daemon.api.replays import ReplayRequest
from sublet.daemon.audit_log.segments import lines, torn
from sublet.daemon.ports.peer_link import PeerAddress
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.store import Store
from sublet.daemon.supervising import replay_service
from sublet.daemon.supervising.replay_service import ReplayService
from sublet.mcp_server.room_pages import in_full
from sublet.messaging.backends.blob_files import FileBlobs
from sublet.messaging.backends.zenoh_config import Endpoints, Uplink
from sublet.messaging.backends.zenoh_network import ZenohNetwork
from sublet.messaging.documents.held import HeldUpdate, Need
from sublet.messaging.documents.sequence import Node, YataList
from sublet.messaging.quotas.quotas import Quotas
from sublet.policy.decision import Subject
from sublet.policy.engine import Policy
from sublet.policy.grants import _within
from sublet.policy.lending import Protected
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.events import EventKeys, EventKind
from sublet.protocol.ezagent.yjs.update import STRING, Item, Update
from sublet.supervisor.a2a_config import A2aConfig
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.job import Job
from sublet.supervisor.remote_agent import RemoteAgentProvider, RemoteNews
from supervisor import test_dispatch
from support.a2a_world import world
from support.cut_proxy import cut_proxy
from support.decisions import gatekeeper
from support.jobs import Log, job
from support.noise import noise
from support.ports import free_port

MEMBER = "@member:a"
MAX_REPLAYED = 10


class _ByPeerLink:
    """Speaks with one peer, as the daemon does for agents elsewhere."""

    def __init__(self, link: A2ATextLink, peer: PeerAddress) -> None:
        self._link = link
        self._peer = peer

    async def ask(
        self, target: A2aConfig, agent_id: str, job: Job, *, token: str, context: str | None
    ) -> AsyncGenerator[RemoteNews, None]:
        """Yield what the peer says."""
        async with aclosing(self._link.say(self._peer, job.prompt, {}, context)) as said:
            async for piece in said:
                yield RemoteNews(text=piece.text)


async def _answers_that_break_off() -> None:
    """An agent elsewhere breaks off in the middle of its answer again and again, then fails: the job ends alone."""
    config = AgentConfig.model_validate({"id": "far", "provider": {"type": "a2a", "peer": "bob"}})
    with tempfile.TemporaryDirectory(prefix="again") as base:
        place = Path(base)
        async with world(place) as bob, cut_proxy(bob.url) as proxy:
            alice = bob.alice
            link = A2ATextLink(alice.key, alice.node_id, alice.fingerprint)
            peer = replace(bob.peer(), a2a_url=proxy.url)
            provider = RemoteAgentProvider(config, _ByPeerLink(link, peer))
            told = Log()
            bob.messages.gate.clear()
            async with asyncio.TaskGroup() as group:
                running = group.create_task(provider.run(job(place, "hello"), told))
                await _until(lambda: "you said" in told.text())
                for _ in range(2):
                    met = proxy.connections
                    proxy.cut()
                    await _until(lambda: proxy.connections > met)  # noqa: B023  # it is awaited here
                bob.messages.failure = SubletError(ErrorCode.DECLINED, "nonsense \x1b[2J")
                bob.messages.gate.set()
            assert running.result().reason == "failed"


async def _until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not holds():
            await asyncio.sleep(0.01)


async def _files_that_are_no_log() -> None:
    """Somebody puts a FIFO, a link and a directory where the audit log lies: none is waited for."""
    with tempfile.TemporaryDirectory(prefix="again") as base:
        place = Path(base)
        os.mkfifo(place / "fifo")
        (place / "link").symlink_to("fifo")
        (place / "directory").mkdir()
        for name in ("fifo", "link", "directory"):
            for read in (lambda path: list(lines(path)), torn):
                try:
                    await asyncio.to_thread(read, place / name)
                except OSError:
                    continue
                raise AssertionError(f"{name} was read")


async def _sessions_without_end() -> None:
    """A session that others made longer than is replayed is refused, and so is one that nobody knows."""
    with tempfile.TemporaryDirectory(prefix="again") as base:
        store = await Store.open(Path(base) / "it.db")
        journal, policy = Journal(store), Policy(Protected(Path("/nowhere")))
        service = ReplayService(gatekeeper(journal, policy), journal, policy)
        keys = EventKeys(finger_session_id="s1")
        for _ in range(MAX_REPLAYED // 2 + 1):
            for kind in (EventKind.SESSION_CREATED, EventKind.ROUTE_DECIDED):
                await journal.events.append_event(kind, None, {"nonsense": [[[]]]}, keys=keys)
        with (
            patch.object(replay_service, "MAX_PAGE", 3),
            patch.object(replay_service, "MAX_REPLAYED_EVENTS", MAX_REPLAYED),
        ):
            for session, code in (("s1", LocalCode.INVALID_ARGUMENT), ("s2", LocalCode.NOT_FOUND)):
                with pytest.raises(SubletError) as refused:
                    await service.replay_session(ReplayRequest(session_id=session), Subject("human"))
                assert refused.value.code is code
        await store.close()


async def _blobs_that_are_directories() -> None:
    """What lies in place of a file of a room is no file: the others go all the same."""
    with tempfile.TemporaryDirectory(prefix="again") as base:
        blobs = FileBlobs(Path(base), 1_000)
        kept = blobs.put(b"kept")
        (Path(base) / ("0" * 64)).mkdir()
        for digest in ("0" * 64, "1" * 64):
            with pytest.raises((IsADirectoryError, FileNotFoundError)):
                blobs.read(digest, 0, 10)
        assert blobs.read(kept, 1, 2) == b"ep"
        for digest in ("0" * 64, "1" * 64, kept):
            blobs.drop(digest)
        assert blobs.size(kept) is None


async def _relays_that_are_none() -> None:
    """Nobody answers where a relay should, then somebody who speaks nonsense; the bus ends when it is told to."""

    async def nonsense(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            writer.write(noise(512))
            await writer.drain()
        writer.close()

    relay = free_port()
    network = ZenohNetwork(Endpoints((f"tcp/{HOST}:{free_port()}",)))
    try:
        network.use_relay(Uplink(f"tls/{HOST}:{relay}", "s00000", "", Path("none.pem"), Path("none.key"), None))
        async with await asyncio.start_server(nonsense, HOST, relay):
            await asyncio.sleep(0)
    finally:
        with anyio.fail_after(30):
            await asyncio.to_thread(network.close)


# What a member or a stranger makes long


def _chain(size: int) -> tuple[Quotas, Any]:
    """Return updates of strangers, each of which waits for the next one, and one of a member that waits for the first.

    They come in the order that is the worst for who looks through them.
    """
    held = [_waiting(f"@s{client}:a", client, (client + 1, 0)) for client in range(2, size // 8)]
    held = [*reversed(held), _waiting(MEMBER, 1, (2, 0))]
    rooms = SimpleNamespace(counts=lambda _room, signer, _part, _at: signer == MEMBER)
    none: Any = None
    return Quotas(none, none, cast("Any", rooms), none, none, none, none), SimpleNamespace(held=held, room_part="index")


def _waiting(signer: str, client: int, origin: tuple[int, int]) -> HeldUpdate:
    item = Item(0, 1, STRING, origin, None, None, None, "x")
    envelope = cast("Any", SimpleNamespace(signer=signer))
    return HeldUpdate(envelope, Update(client, 0, 1, [item], []), Need(origin, 0))


def _list(number: int) -> tuple[YataList, list[Node]]:
    made, nodes = YataList(), []
    for clock in range(number):
        node = Node((1, clock), 1, (1, clock - 1) if clock else None, None, f"{clock}", "", 0)
        made.integrate(node)
        nodes.append(node)
    return made, nodes


def _look_through(given: tuple[YataList, list[Node]]) -> None:
    made, _ = given
    walked = list(made.forwards())
    assert made.precedes(walked[0], walked[-1]) or made.precedes(walked[-1], walked[0])


def _message(size: int) -> ConversationMessage:
    return ConversationMessage.model_validate(
        {
            "ref_id": "r",
            "room_id": "#r:a",
            "author": "@eve:a",
            "own": False,
            "created_at": "2026-11-29T00:00:00.000Z",
            "status": "active",
            "body": '\x00\\\\\u202e\n"' * (size // 6),
        }
    )


PROBES: Sequence[Probe] = (
    FailureProbe(
        name="again: an agent elsewhere that breaks off",
        covers=(
            "a2a_client.text_link:_Exchange.run",
            "supervisor.output:flushed_regularly",
            "supervisor.remote_agent:RemoteAgentProvider.run",
        ),
        throw=_answers_that_break_off,
    ),
    FailureProbe(
        name="again: a client of plain messages whose agent fails, and one that goes",
        covers=("a2a_server.plain:PlainAnswers._stream",),
        throw=throwing(
            partial(
                test_plain_clients.test_failures_are_told_without_local_facts,
                failure=OSError("/home/bob/x"),
                state=4,
                words="The agent failed",
            ),
            partial(test_plain_clients.test_c43_a_plain_message_is_cancelled, version="1.0"),
        ),
    ),
    FailureProbe(
        name="again: an answer to INVITE that is lost",
        covers=("a2a_client.client:_begun",),
        throw=throwing(
            test_link.test_a_lost_answer_to_invite_is_asked_for_again,
            test_cancel.test_c41_before_the_invite_is_looked_at,
        ),
    ),
    FailureProbe(
        name="again: an audit log that somebody has been at",
        covers=(
            "daemon.audit_log.log:AuditLog.denials",
            "daemon.audit_log.log:AuditLog.entries",
        ),
        throw=throwing(
            test_log.test_a_line_that_somebody_spoilt_hides_no_other_denial,
            test_log.test_readers_wait_for_news_and_page_from_the_files,
        ),
    ),
    FailureProbe(
        name="again: an audit log that is no file",
        covers=("daemon.audit_log.segments:_opened",),
        throw=_files_that_are_no_log,
    ),
    FailureProbe(
        name="again: an executor that can't be dialled, and one that hears nothing of the end",
        covers=(
            "daemon.lending.delegation_run:DelegationRun._work",
            "daemon.lending.going_along:GoingAlong._dial",
            "daemon.lending.late_news:LateNews.tell",
        ),
        throw=throwing(
            test_delegator.test_an_executor_that_can_not_be_dialled_ends_it,
            test_delegator.test_an_executor_is_dialled_once_however_often_it_asks,
            test_delegator.test_a_peer_that_is_heard_again_is_told_of_the_end,
        ),
    ),
    FailureProbe(
        name="again: a peer that is silent when it is given a further prompt",
        covers=(
            "daemon.lending.steering:Steering.begun",
            "daemon.lending.steering:Steering.extend",
            "daemon.lending.steering:Steering.say",
        ),
        throw=throwing(
            test_steering.test_a_follow_up_that_is_said_while_the_work_is_being_arranged_waits_for_it,
            test_steering.test_a_follow_up_waits_for_a_peer_that_is_silent,
            test_steering.test_a_follow_up_that_is_refused_or_too_late_says_why,
            test_steering.test_an_end_that_is_journalled_first_stays,
        ),
    ),
    FailureProbe(
        name="again: an accepted INVITE whose START never comes",
        covers=("daemon.working.executor:Executor._hold",),
        throw=throwing(test_executor.test_a_start_that_never_comes_gives_everything_back),
    ),
    FailureProbe(
        name="again: an agent's question that is answered late",
        covers=("daemon.working.follow_ups:NextFollowUps.answer",),
        throw=throwing(test_follow_ups.test_the_answer_is_asked_for_once_at_each_renewal),
    ),
    FailureProbe(
        name="again: a quiet stream of events",
        covers=("daemon.operations.routes:OperationRoutes.follow.lines",),
        throw=throwing(test_control.test_a_quiet_stream_shows_that_it_is_alive),
    ),
    FailureProbe(
        name="again: a feed of events whose reader may have no more",
        covers=("daemon.control.event_service:EventService.follow_events",),
        throw=throwing(test_service.test_a_feed_goes_on_where_it_was_and_asks_policy_for_each_page),
    ),
    FailureProbe(
        name="again: news of rooms after cursors that nobody has given",
        covers=("daemon.rooms.news_service:NewsService.follow",),
        throw=throwing(
            test_conversations.test_what_json_can_not_say_takes_no_page_from_anybody,
            partial(test_conversations.test_a_cursor_that_no_event_has_is_refused, cursor=1 << 63),
        ),
    ),
    FailureProbe(
        name="again: sessions without end",
        covers=("daemon.supervising.replay_service:ReplayService._events",),
        throw=_sessions_without_end,
    ),
    FailureProbe(
        name="again: words of others in the room of a work",
        covers=("daemon.rooms.work_talk:WorkTalk.heard",),
        throw=throwing(test_work_talk.test_tools_and_last_words_are_of_the_job_and_its_agent_alone),
    ),
    FailureProbe(
        name="again: links to the page without end",
        covers=("daemon.web_access.logins:WebLogins.make",),
        throw=throwing(test_logins.test_one_link_too_many_voids_the_oldest),
    ),
    FailureProbe(
        name="again: a link to the files that is cut",
        covers=("daemon.working.data_link:DataLink._regain",),
        throw=throwing(test_data_link.test_an_agent_that_cannot_begin_since_the_link_broke_is_started_again),
    ),
    FailureProbe(
        name="again: events that were lost for who follows them",
        covers=("messaging.bus:stream",),
        throw=throwing(
            test_identity.test_a_stream_from_now_on_holds_nothing_from_before,
            test_identity.test_a_stream_tells_that_events_were_lost,
        ),
    ),
    FailureProbe(
        name="again: acknowledgements that are lost, and what came while nobody watched",
        covers=("messaging.delivery.cursors:_last_messages", "messaging.delivery.delivery:Delivery.receipts"),
        throw=throwing(
            test_idle.test_an_acknowledgement_that_got_lost_is_asked_for,
            test_idle.test_what_came_while_nobody_watched_comes_first_and_once,
        ),
    ),
    FailureProbe(
        name="again: forgetting that was killed",
        covers=("messaging.membership.forgetting:Forgetting.rooms",),
        throw=throwing(test_forgetting.test_what_was_begun_before_a_kill_is_ended_by_the_next_one),
    ),
    FailureProbe(
        name="again: files of rooms that are no files",
        covers=("messaging.backends.blob_files:FileBlobs.drop", "messaging.backends.blob_files:FileBlobs.read"),
        throw=_blobs_that_are_directories,
    ),
    FailureProbe(
        name="again: a relay that is none",
        covers=(
            "messaging.backends.zenoh_network:ZenohNetwork._dial",
            "messaging.backends.zenoh_network:ZenohNetwork.use_relay",
        ),
        throw=_relays_that_are_none,
    ),
    FailureProbe(
        name="again: an agent of a team that fails while the others work",
        covers=("supervisor.super_agent:SuperAgent._at_once",),
        throw=throwing(test_dispatch.test_a_team_at_once_and_one_that_fails),
    ),
    CostProbe(
        name="again: updates of strangers that wait for each other",
        covers=("messaging.quotas.quotas:Quotas._needed_in",),
        make=_chain,
        run=lambda given: given[0]._needed_in("#r:a", given[1]),
    ),
    CostProbe(
        name="again: a long timeline",
        covers=("messaging.documents.sequence:Chain.forwards", "messaging.documents.sequence:YataList.precedes"),
        make=_list,
        run=_look_through,
        size=1_024,
    ),
    CostProbe(
        name="again: a message of odd characters",
        covers=("mcp_server.room_pages:in_full",),
        make=_message,
        run=lambda message: in_full(message, 0),
        size=16_384,
    ),
    CostProbe(
        name="again: agents that call each other without end",
        covers=("policy.grants:_within",),
        make=lambda number: {f"a{one}": {f"a{(one + 1) % number}", f"a{one // 2}"} for one in range(number)},
        run=lambda nests: _within("a0", nests),
        size=1_024,
    ),
)
