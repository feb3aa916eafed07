"""Decoders of the supervisor: its sessions on the disk, what a request addresses, and what ACP agents send."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from dataclasses import replace
from typing import Any, cast

import acp
from acp.schema import RequestPermissionRequest
from pydantic import ValidationError

from fuzz.targets import _file, _json, _scratch, target
from sublet.daemon.api.events import FOLLOW_EVENTS
from sublet.daemon.api.sessions import ASK
from sublet.daemon.operations.calling import read_event, read_numbered
from sublet.daemon.working.job_files import job_files
from sublet.policy.tool_calls import tool_resource
from sublet.protocol.errors import SubletError
from sublet.supervisor.acp import tool_calls
from sublet.supervisor.acp.asking import ToolQuestions
from sublet.supervisor.acp.file_requests import FileRequests
from sublet.supervisor.acp.stream import MAX_ID_CHARS, AgentStream, Misbehaved
from sublet.supervisor.router import syntax
from sublet.supervisor.sessions import older_map
from sublet.supervisor.sessions import store as session_store
from support.gates import ListGate
from support.jobs import Log, job

NOW = "2026-11-28T10:00:00Z"
SESSION = "fsess_1"
MANY = 1 << 20


@target("session_files", "supervisor.sessions.store:load", "supervisor.sessions.store:_read")
def _session_files(data: bytes) -> None:
    """Take the bytes for each file of a session: what can't be read is put aside, and what can is kept as it was."""
    root = _scratch() / "sessions"
    shutil.rmtree(root, ignore_errors=True)
    directory = root / SESSION
    directory.mkdir(parents=True)
    for name in (session_store.SESSION_FILE, session_store.BINDINGS_FILE, session_store.MESSAGES_FILE):
        (directory / name).write_bytes(data)
    store = session_store.SessionStore(root, lambda: NOW)
    first = store.load(SESSION)
    assert first.session.finger_session_id == SESSION
    asides = [path.read_bytes() for path in directory.glob(f"{session_store.SESSION_FILE}.corrupt-*")]
    assert asides == [data] * len(first.damage), "nothing that can't be read is lost"
    store.save(first.session)
    again = store.load(SESSION)
    assert not again.damage
    assert again.session.model_dump_json() == first.session.model_dump_json()
    bound = store.bindings(SESSION)
    store.save_bindings(SESSION, bound.bindings)
    assert store.bindings(SESSION).bindings == bound.bindings
    said = store.messages(SESSION, MANY)
    for message in said.messages[:2]:
        store.append(SESSION, message)
    assert store.messages(SESSION, MANY).unreadable == said.unreadable


@target("older_session_map", "supervisor.sessions.older_map:read_older_map", raises=[SubletError])
def _older_session_map(data: bytes) -> None:
    found = older_map.read_older_map(_file(older_map.OLDER_MAP_FILE, data), NOW)
    assert found is not None
    assert len({(each.finger_session_id, each.agent_id) for each in found.bindings}) == len(found.bindings)


@target("ask_text", "supervisor.router.syntax:parse")
def _ask_text(data: bytes) -> None:
    asked = data.decode("utf-8", "replace")
    direct = syntax.parse(asked)
    assert direct is None or direct.rest in asked
    assert syntax.is_direct_hub(asked) == (direct is not None and direct.kind == "hub")
    syntax.mentions(asked)
    syntax.words(asked)


@target("ask_events", "daemon.operations.calling:read_event", raises=[SubletError])
def _ask_events(data: bytes) -> None:
    """The first line is the kind of the event."""
    kind, _, event = data.decode("utf-8", "replace").partition("\n")
    read_event(ASK, kind, event)


@target("told_events", "daemon.operations.calling:read_numbered", raises=[SubletError])
def _told_events(data: bytes) -> None:
    event = read_numbered(FOLLOW_EVENTS, data.decode("utf-8", "replace"))
    assert isinstance(event.seq, int)
    assert isinstance(event.kind, str)


class _Ends:
    """Stands for the process, of which the reading of a line needs nothing."""

    stdin = stdout = object()


@target("acp_lines", raises=[Misbehaved])
def _acp_lines(data: bytes) -> None:
    stream = AgentStream(cast(Any, _Ends()), lambda count: None)
    for line in data.split(b"\n"):
        message = stream._message(line)
        assert message is None or isinstance(message, dict)
        assert all(len(key) <= MAX_ID_CHARS for key in stream._open), "ids are kept, and so are bounded"


@target("acp_tool_call", raises=[ValidationError, tool_calls.TooLarge])
def _acp_tool_call(data: bytes) -> None:
    work = job(_scratch() / "acp", "work")
    asked = RequestPermissionRequest.model_validate(_json(data))
    call = tool_calls.tool_call(asked.tool_call, work.resources)
    assert call.tool == call.tool.lower()
    assert len(call.paths) <= tool_calls.MAX_PATHS
    tool_resource(call.tool, call.arguments, call.paths, access_mode="rw")
    tool_calls.choose(asked.options, allowed=True)


@target("acp_file_request", "supervisor.acp.file_requests:read", raises=[acp.RequestError])
def _acp_file_request(data: bytes) -> None:
    """The first line is the path; all is in the file ``f``, of which a part is read, too."""
    work = replace(job(_scratch() / "acp", "work"), gate=ListGate())
    (work.workspace / "f").write_bytes(data)
    path = data.partition(b"\n")[0].decode("utf-8", "replace")

    async def main() -> None:
        files = job_files(work)
        requests = FileRequests(work, files, ToolQuestions(work, Log()))
        try:
            with contextlib.suppress(acp.RequestError):
                await requests.read(path, None, None)
            whole = await requests.read("f", None, None)
            assert whole.content == data.decode()
            assert (await requests.read("f", 2, 1)).content in whole.content
        finally:
            await files.aclose()

    asyncio.run(main())
