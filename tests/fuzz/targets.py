"""The registry of decoders: what takes bytes or text that somebody else may have made (more: ``supervisor_targets``,
``messaging_targets``).

A target is called with bytes. It returns, or raises one of the errors that its decoder documents; anything else is a
finding. ``covers`` names the functions that it exercises, as ``module:name``.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import h11
import typer
from a2a.helpers import new_data_part
from a2a.utils.errors import A2AError

from sublet.a2a_server import hosts, json_rpc, task_store
from sublet.a2a_wire import assertion, parts
from sublet.cli.commands.governance import policy as policy_commands
from sublet.cli.options import values
from sublet.daemon.audit_log import log as audit_log
from sublet.daemon.audit_log.chain import EMPTY, BrokenChain, read_entry
from sublet.daemon.audit_log.segments import lines
from sublet.daemon.audit_log.verify import verify
from sublet.daemon.config import config_file
from sublet.daemon.control import client_http
from sublet.daemon.net import addresses, base_url, last_ports
from sublet.daemon.peering import identity, pair_link
from sublet.daemon.process import lock
from sublet.mcp_server import arguments, relay_session, toml_entry
from sublet.mcp_server import connection as mcp_connection
from sublet.policy import config as policy_config
from sublet.policy.capabilities import module_file
from sublet.policy.config import PolicyConfig
from sublet.policy.decision import Action, Resource, Subject
from sublet.policy.engine import Policy
from sublet.policy.globs import is_literal
from sublet.policy.guardrail import check, extract
from sublet.policy.guardrail.repair import repaired
from sublet.policy.guardrail.schema import CheckedSchema
from sublet.policy.lending import Protected
from sublet.policy.names import plain, skeleton
from sublet.policy.rules import Rule
from sublet.policy.tool_calls import tool_resource
from sublet.policy.tool_names import tool_plain, tool_skeletons
from sublet.protocol import canonical, codec, demands, encoding, gateway, ids, names, signing, text
from sublet.protocol.bounded_json import BadJson, parse_json
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import RemoteProtocolError, SubletError
from sublet.supervisor import agent_config
from sublet.supervisor.chat import arguments as chat_arguments
from sublet.supervisor.chat import conversations, endpoint, reply, sse
from sublet.supervisor.gateways import module_file as gateway_file
from sublet.workspace import viewpath
from sublet.workspace.archive import tar_format, tar_reader
from sublet.workspace.archive import wire as archive_wire
from sublet.workspace.audit import manifest
from sublet.workspace.birth import Identity
from sublet.workspace.bundles import listing, pack
from sublet.workspace.bundles.taken import Taken
from sublet.workspace.changes import record as change_record
from sublet.workspace.changes import transaction_plan
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.export import LeaseUsage
from sublet.workspace.git import config as git_config
from sublet.workspace.git import place as git_place
from sublet.workspace.git import refs as git_refs
from sublet.workspace.kept import log as kept_log
from sublet.workspace.mount import relay as sftp_relay
from sublet.workspace.quota import Quota
from sublet.workspace.serving import lease_memory
from sublet.workspace.sftp.core import ProtocolAbort, SftpCore
from sublet.workspace.sftp.handles import HandleBudget, Handles
from sublet.workspace.sftp.reply import SlowReply
from sublet.workspace.ssh import keys as ssh_keys
from sublet.workspace.ssh import reverse
from sublet.workspace.view import rules
from sublet.workspace.view.export_view import ExportView, WritableView
from support.at_once import events_of
from support.sftp_client import INIT, next_reply
from support.views import default_rules

KEY = b"\1" * 32
PRINT = ids.fingerprint(KEY)


@dataclass(frozen=True)
class Target:
    """One decoder, or a few that belong together."""

    call: Callable[[bytes], None]
    raises: tuple[type[Exception], ...]
    covers: tuple[str, ...]


TARGETS: dict[str, Target] = {}

EXEMPT: dict[str, str] = {
    "daemon.federation.settings_file:load": "has federation.settings:read_settings read the file",
    "messaging.relay.authority:load": "reads the files that this relay has written; cryptography is the decoder",
    "messaging.relay.settings:read_settings": "reads the file of whoever runs the relay; pydantic is the decoder",
    "daemon.process.own_home:_read": "reads the file that this daemon has written; home_token decodes what peers say",
    "daemon.peering.homes:_read": "reads the file that this daemon has written; home_token decodes what peers say",
    "migrations.salvage:_read": "reads rows by SQLite itself; tests/messaging/mending spoils them",
    "messaging.links.link:_read": "takes bytes from a socket as they are",
    "cli.commands.asking.ask:read_schema": "reads a file that the owner names; json_schema is the decoder",
    "supervisor.capabilities.registry:read_capabilities": "takes directories; module_json is the decoder",
    "supervisor.capabilities.registry:_read": "takes a directory; module_json is the decoder",
    "supervisor.capabilities.registry:read_file": "returns a file as it is; module_json decodes it",
    "supervisor.gateways.module_file:read_gateways": "takes a directory; module_json is the decoder",
    "daemon.storage.stored:read_delegation": "reads a row that this daemon has written; test_journal spoils them",
    "daemon.storage.stored:read_assignment": "reads a row that this daemon has written; test_journal spoils them",
    "daemon.storage.event_log:load_object": "reads only rows that this process has written into its own database",
    "workspace.audit.manifest:_parsed": "reads what its caller has found whole by its own digest",
    "disk.private_dir:read": "returns a file as it is, of a size that is bounded",
    "daemon.approvals.approver:load": "reads the row that this daemon has written into its own database",
    "supervisor.well_known.adding:_read": "reads the owner's agent.json in her own command; agent_json is the decoder",
    "supervisor.sessions.control:_load": "takes an id; session_files is the decoder",
    "supervisor.acp.client:read_text_file": "checks whose session it is; acp_file_request is the decoder",
    "daemon.operations.calling:read_answer": "reads answers of the user's own daemon into models, as ask_events does",
    "daemon.storage.journal:load_delegation": "takes an id, as a parameter of a statement",
    "daemon.storage.journal:load_assignment": "takes an id, as a parameter of a statement",
    "daemon.storage.journal:_load": "takes statements that are constants",
    "daemon.storage.private_files:read_private": "returns a file as it is; identity decodes it",
    "cli.commands.daemon.running:_read_or_missing": "only looks whether a file is there",
    "cli.help:parse_args": "puts a word in front of arguments, which typer parses",
    "daemon.modules.gateway_feed:_read": "reads the one number that this daemon has written",
    "disk.plain_file:read_plain": "returns a file as it is; its callers decode it",
    "web.sessions:_read": "reads a file that this daemon has written, through a model; test_sessions spoils it",
    "mcp_server.install:_read": "returns a file as it is; toml_entry decodes it",
    "mcp_server.resources:read_resource": "compares a URI with those that exist",
    "cli.commands.results.audit:parse_args": "puts a word in front of arguments, which typer parses",
    "cli.reaching.follow:read_output": "takes an id",
    "workspace.changes.tree:read": "takes a path and returns a file as it is",
    "workspace.audit.snapshot:read_record": "takes a name and reads a file's status",
    "workspace.audit.snapshot:read": "takes a directory",
    "supervisor.chat.conversations:load": "takes an id; read_conversation decodes the file",
    "messaging.opening.open_documents:_load": "takes the id of a document that doc_ids has checked",
    "messaging.declaring.reads_rooms:read_document": "takes the id of a document, as a parameter of a statement",
    "messaging.backends.blob_files:read": "returns bytes as they are, of a file that is named by its hash",
    "messaging.ports.blobs:read": "is the interface of blob_files",
    "messaging.declaring.operating:read_document": "takes the id of a document, as a parameter of a statement",
    "mcp_server.room_resources:read_room": "takes an address of which the id is looked up among those that exist",
    "cli.commands.rooms.messages:read": "takes the name of a room, looked up among those that exist, and an id",
    "daemon.rooms.entities:load_entities": "takes a directory; key_files is the decoder",
    "daemon.rooms.entities:load_agent": "takes a directory; key_files is the decoder",
    "daemon.rooms.entities:load_named": "takes a name that is checked; key_files is the decoder",
    "daemon.rooms.entities:_load": "takes a file; key_files is the decoder",
    "daemon.rooms.third_party:load_third_party": "takes names of config.json, which config_json decodes",
    "daemon.rooms.third_party:_load": "takes a name of config.json, which config_json decodes",
    "office_server.socketio_server:decode": "takes a frame that office_frame has read, and parses by bounded_json",
    "protocol.ezagent.challenge:_parse": "what entity_challenge and challenge_response both begin with",
    "messaging.texts.texts:read": "takes the id of a document; yjs_update decodes what is in it",
    "workspace.lease_files:read": "checks names one by one, and returns a file as it is",
    "workspace.lease_files:_read": "takes names that were checked, and returns a file as it is",
}
"""Functions that look like decoders by their name and are none, each with the reason."""


Call = Callable[[bytes], None]


def target(name: str, *covers: str, raises: Sequence[type[Exception]] = ()) -> Callable[[Call], None]:
    """Register a target."""

    def register(call: Call) -> None:
        TARGETS[name] = Target(call, tuple(raises), covers)

    return register


def _json(data: bytes) -> Any:
    """Return JSON as the A2A side parses it before anything of ours sees it; None where it is none, or too deep."""
    with contextlib.suppress(BadJson):
        return parse_json(data, depth=json_rpc.MAX_DEPTH, values=json_rpc.MAX_VALUES)
    return None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


@cache
def _scratch() -> Path:
    """Return a directory of this process, which is removed when it ends."""
    holder = tempfile.TemporaryDirectory(prefix="sublet-fuzz-")
    _holders.append(holder)
    return Path(holder.name)


_holders: list[tempfile.TemporaryDirectory[str]] = []


def _file(name: str, data: bytes) -> Path:
    path = _scratch() / name
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    path.chmod(0o600)
    return path


# protocol


@target("awcp_message", "protocol.codec:decode", raises=[RemoteProtocolError])
def _message(data: bytes) -> None:
    message = codec.decode(_json(data))
    assert codec.decode(codec.encode(message)) == message


@target("canonical_json", raises=[ValueError])
def _canonical(data: bytes) -> None:
    value = canonical.narrow(_json(data))
    first = canonical.canonical_json(value)
    assert canonical.canonical_json(canonical.narrow(json.loads(first))) == first


@target("signed_message", "protocol.encoding:unb64", raises=[RemoteProtocolError])
def _signed(data: bytes) -> None:
    encoding.unb64(_text(data), 32)
    body = _json(data)
    if isinstance(body, dict):
        signing.verify_message(body, signer=KEY, recipient=PRINT, now=1_700_000_000, nonces=None)
        raise AssertionError("a signature of nobody was believed")


@target("failure_json", "protocol.errors:from_json", raises=[KeyError])
def _failure(data: bytes) -> None:
    body = _json(data)
    if isinstance(body, dict):
        str(SubletError.from_json(body))


@target("sandbox_demand", "protocol.demands:parse_demand", raises=[ValueError])
def _demand(data: bytes) -> None:
    demand = _text(data)
    name, _ = demands.parse_demand(demand)
    assert demand.partition("=")[0] == name
    demands.unmet([demand], None, [])


@target(
    "foreign_name",
    "protocol.names:parse_name",
    "protocol.names:parse_plain_name",
    raises=[names.MalformedName],
)
def _foreign_name(data: bytes) -> None:
    assert Path("/a", names.parse_name(_text(data))).parent == Path("/a")
    assert names.parse_name(data) == names.parse_name(_text(data))
    assert names.parse_plain_name(data).raw.isascii()


@target("peer_text")
def _peer_text(data: bytes) -> None:
    for raw in (_text(data), data.decode("latin-1")):
        for shown in (text.clean(raw), text.clean_line(raw), text.clean_name(raw)):
            assert len(shown) <= text.MAX_SUMMARY_CHARS
            assert text.clean(shown) == shown
        assert "\n" not in text.clean_line(raw)
        text.escape_text(raw)
        assert not any(text._hidden(char) for char in text.clean_name(data))


# workspace


def _sftp(data: bytes, *, writable: bool) -> None:
    root = _scratch() / "tree"
    if not root.exists():
        (root / "d").mkdir(parents=True)
    for name, content in (("f", b"content"), ("d/g", b"x")):
        with contextlib.suppress(OSError):
            (root / name).write_bytes(content)
    quota, usage = Quota(1 << 16, 20, 1 << 14), LeaseUsage()
    descriptor = ConfinedFs.open_root(root)
    view: ExportView
    if writable:
        fs = WritableFs(descriptor, default_rules(), quota, lambda _: None)
        view = WritableView({"workspace": fs}, {"task.json": b"{}"})
    else:
        view = ExportView({"workspace": ConfinedFs(descriptor, default_rules(), quota)}, {"task.json": b"{}"})
    core = SftpCore(view, usage, Handles(HandleBudget(8)), lambda: True)
    try:
        core.receive(INIT)
        core.receive(data)
        while (reply := next_reply(core)) is not None:
            if isinstance(reply, SlowReply):
                reply.answer()
    finally:
        core.close()
        view.close()


@target("sftp_read_only", raises=[ProtocolAbort])
def _sftp_ro(data: bytes) -> None:
    _sftp(data, writable=False)


@target("sftp_writable", raises=[ProtocolAbort])
def _sftp_rw(data: bytes) -> None:
    _sftp(data, writable=True)


@target(
    "sftp_relay",
    "workspace.mount.relay:from_client",
    "workspace.mount.relay:from_server",
    raises=[sftp_relay.ClientViolation, sftp_relay.LinkViolation],
)
def _relay(data: bytes) -> None:
    """Take turns: two bytes say whose turn it is and how many bytes it says; none of them is a link that is lost."""
    relay = sftp_relay.SftpRelay()
    while len(data) >= 2:
        turn = int.from_bytes(data[:2], "big")
        piece, data = data[2 : 2 + turn % 0x8000], data[2 + turn % 0x8000 :]
        if not piece:
            relay.lose()
            if relay.state is sftp_relay.LinkState.DOWN:
                relay.attach()
        elif turn < 0x8000:
            relay.from_client(memoryview(bytearray(piece)))
        elif relay.state is not sftp_relay.LinkState.DOWN:
            relay.from_server([piece[:7], piece[7:]])
        relay.to_client.clear()
        relay.to_server.clear()


@target(
    "archive_frames",
    "workspace.archive.wire:read_plan",
    "workspace.archive.wire:read_report",
    "workspace.archive.wire:read_failure",
    raises=[archive_wire.MalformedFrame],
)
def _frames(data: bytes) -> None:
    for kind, payload in archive_wire.Frames().receive(data):
        if kind == archive_wire.Frame.PLAN:
            for planned in archive_wire.read_plan(payload):
                assert b".." not in planned.parts
        elif kind == archive_wire.Frame.REPORT:
            archive_wire.read_report(payload)
        elif kind == archive_wire.Frame.FAIL:
            archive_wire.read_failure(payload)


class _Sink:
    def begin(self, entry: tar_format.Entry) -> None:
        assert all(part not in (b"", b".", b"..") for part in entry.parts)
        assert len(entry.parts) > 0

    def data(self, piece: memoryview) -> None:
        assert len(piece) > 0

    def end(self) -> None:
        """Nothing is kept."""


@target("tar_stream", raises=[tar_format.MalformedTar])
def _tar(data: bytes) -> None:
    reader = tar_reader.TarReader(_Sink(), tar_format.TarLimits(100, 1 << 20, 1 << 16))
    reader.feed(data[:700])
    reader.feed(data[700:])
    reader.finish()


@target("reverse_preamble", "workspace.ssh.reverse:parse_preamble")
def _preamble(data: bytes) -> None:
    name = reverse.parse_preamble(data)
    assert name is None or reverse.pack_preamble(name) == data


@target("public_key_line", "workspace.ssh.keys:read_public_key", raises=[ValueError])
def _public_key(data: bytes) -> None:
    ssh_keys.read_public_key(_text(data))


@target("view_path", raises=[OSError])
def _path(data: bytes) -> None:
    split = viewpath.split(data)
    assert not {b"", b".", b".."} & set(split)
    viewpath.link_stays(len(split), data)


@target("name_patterns", raises=[SubletError])
def _patterns(data: bytes) -> None:
    found = rules.Rules(["secret"], [".git"], [line for line in _text(data).split("\n") if line])
    found.hidden([b"a", b"secret"])
    found.guards_below([b"a"])


@target("change_record", "workspace.changes.record:load", "workspace.changes.record:read_kept", raises=[SubletError])
def _change_record(data: bytes) -> None:
    directory = _scratch() / "staged"
    directory.mkdir(exist_ok=True)
    (directory / change_record._FILE).write_bytes(data)
    change_record.load(directory, "dlg_1")


@target("transaction_plan", "workspace.changes.transaction_plan:load", raises=[SubletError])
def _transaction_plan(data: bytes) -> None:
    transaction_plan.load(_file("plan", data))


@target(
    "manifest",
    "workspace.audit.manifest:load",
    "workspace.audit.manifest:load_differing",
    "workspace.audit.manifest:_others",
    "workspace.audit.manifest:_parsed_first",
)
def _manifest(data: bytes) -> None:
    """Whatever begins a manifest, of either version; one that is not whole by its own digest is none."""
    directory = _file("manifest", data).parent
    found = manifest.load(directory, "manifest")
    assert found is None or data.startswith((manifest._MAGIC, manifest._FIRST_MAGIC))
    differing = manifest.load_differing(directory, "manifest", "manifest")
    assert differing is None or found is not None


@target("file_identity", "workspace.birth:read")
def _file_identity(data: bytes) -> None:
    found = Identity.read(data)
    assert found is None or Identity.read(found.text()) == found


@target("bundle_file", "workspace.bundles.pack:read_head", raises=[pack.MalformedBundle])
def _bundle_file(data: bytes) -> None:
    """Take the bytes as a whole bundle, and as the pack of one."""
    with contextlib.suppress(pack.MalformedBundle):
        pack.measure(io.BytesIO(data), 0, max_objects=100, max_bytes=1 << 20)
    file = io.BytesIO(data)
    head = pack.read_head(file, b"refs/heads/sublet")
    assert pack.measure(file, head.pack, max_objects=100, max_bytes=1 << 20).bytes <= 1 << 20


@target(
    "bundle_listing",
    "workspace.bundles.listing:read",
    "workspace.bundles.taken:read",
    raises=[listing.MalformedListing],
)
def _bundle_listing(data: bytes) -> None:
    with contextlib.suppress(listing.MalformedListing):
        Taken.read("a" * 40, listing.records(io.BytesIO(data)), compared=False)
    taken = Taken.read("a" * 40, listing.records(io.BytesIO(data)), compared=True)
    assert set(taken.sizes) <= {change.blob for change in taken.changes}


@target("git_place", "workspace.git.place:read_file")
def _git_place(data: bytes) -> None:
    """Take the bytes for each file that says where a repository, its objects and its branch are."""
    root = _scratch() / "place"
    own = root / ".git"
    for name in ("objects/info", "refs"):
        (own / name).mkdir(parents=True, exist_ok=True)
    for name in ("HEAD", "config", "commondir", "objects/info/alternates"):
        (own / name).write_bytes(data)
        found = git_place.find(root)
        assert found is None or len(found.alternates) <= git_place.MAX_ALTERNATES
        (own / name).unlink()
    pointing = _scratch() / "pointing"
    pointing.mkdir(exist_ok=True)
    (pointing / ".git").write_bytes(data)
    git_place.find(pointing)


@target("git_config", "workspace.git.config:read_config")
def _git_config(data: bytes) -> None:
    copy = git_config.read_config(data).copy
    assert b'hookspath = "/dev/null"' in git_config.read_config(copy).copy
    assert not any(word in copy.lower() for word in (b"include", b"helper", b"sshcommand", b"textconv"))


@target("git_refs", "workspace.git.refs:read_refs", "workspace.git.refs:_read", raises=[OSError])
def _git_refs(data: bytes) -> None:
    repository = _scratch() / "repository" / ".git"
    (repository / "refs" / "heads").mkdir(parents=True, exist_ok=True)
    for name in ("HEAD", "packed-refs", "refs/heads/main"):
        (repository / name).write_bytes(data)
    assert len(git_refs.read_refs(repository.parent)) <= git_refs.MAX_REFS


@target("lease_memory")
def _lease_memory(data: bytes) -> None:
    lease_memory.recall(_file("memory", data))


@target("kept_log", "workspace.kept.log:load", "workspace.kept.log:load_inodes")
def _kept_log(data: bytes) -> None:
    """Whatever lies where a lease keeps what it overwrites; a torn line is passed over."""
    directory = _scratch() / "kept"
    directory.mkdir(exist_ok=True)
    for name in (kept_log.LOG, kept_log.INODES):
        (directory / name).write_bytes(data)
    assert len(kept_log.load_inodes(directory)) == len(data) // 8
    assert len(kept_log.load(directory).states) <= data.count(b"\n")


# policy, supervisor, daemon


@target("last_ports", "daemon.net.last_ports:read_ports")
def _last_ports(data: bytes) -> None:
    found = last_ports.read_ports(_file("ports.json", data))
    assert all(port is None or 0 < port < 65536 for port in (found.a2a, found.sftp))


@target(
    "policy_json",
    "policy.config:load",
    "policy.config:parse",
    "policy.config:read",
    "policy.engine:load",
    "cli.commands.governance.policy:_read",
    raises=[SubletError],
)
def _policy(data: bytes) -> None:
    policy_commands._read(_file("policy.json", data), tested=True)
    Policy.load(_file("policy.json", data), Protected(Path("/nowhere")))
    config = policy_config.load(_file("policy.json", data))
    # Whatever a file says: nobody gains what is a person's alone, and every question has an answer.
    policy = Policy(Protected(Path("/nowhere")), config)
    assert not policy.decide(Subject("agent", "x", role="reviewer"), Action.APPROVAL_DECIDE, Resource("x")).allowed
    for rule in config.rules:
        for action in rule.actions:
            policy.decide(Subject("agent", rule.name, role=rule.role), action, Resource(rule.resource))


@target("policy_names")
def _policy_names(data: bytes) -> None:
    name = data.decode("utf-8", "replace")
    for form in (plain, skeleton, tool_plain):
        assert form(form(name)) == form(name)
    forms = tool_skeletons(name)
    assert forms
    denying = Rule("no", "deny", "global", frozenset({"agent"}), frozenset({Action.TOOL_CALL}), resource=name)
    policy = Policy(Protected(Path("/nowhere")), PolicyConfig((denying,) if is_literal(name) and name else ()))
    asked = tool_resource(name, {"path": name}, [name], access_mode="rw")
    allowed = policy.decide(Subject("agent", name, role=name), Action.TOOL_CALL, asked).allowed
    assert not (allowed and is_literal(name) and name), "what is denied by its own name is denied"


@target("audit_line", "daemon.audit_log.chain:read_entry", "daemon.audit_log.chain:parse_entry", raises=[BrokenChain])
def _audit_line(data: bytes) -> None:
    entry, head = read_entry(data, EMPTY, bytes(32))
    assert entry["seq"] == head.seq == 1


@target("audit_files", "daemon.audit_log.log:_read", raises=[BrokenChain])
def _audit_files(data: bytes) -> None:
    directory = _scratch() / "audit-log"
    directory.mkdir(exist_ok=True)
    (directory / "audit-000000000001.jsonl").write_bytes(data)
    verdict = verify(directory, None, bytes(32))
    assert verdict.problem or verdict.entries == len(list(lines(directory / "audit-000000000001.jsonl")))
    audit_log._read(directory, 0, 10)


GUARDED = CheckedSchema(
    {
        "type": "object",
        "properties": {
            "status": {"enum": ["completed", "failed"]},
            "count": {"type": "integer", "default": 0},
            "notes": {"type": "array", "items": {"type": "string"}, "default": []},
        },
        "required": ["status", "count", "notes"],
    }
)
ANY_VALUES: list[JsonValue] = [
    None,
    1,
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaa!",
    [1, [1], "x"],
    {"a": "1", "x1": None, "b": "aaa!"},
]


@target("guarded_reply", "policy.guardrail.relaxed:read", "policy.guardrail.relaxed:strict_loads", raises=[])
def _guarded_reply(data: bytes) -> None:
    for candidate in extract.candidates(data.decode("utf-8", "replace")):
        json.dumps(candidate.value, ensure_ascii=False).encode()
    result = check.check(data.decode("utf-8", "replace"), GUARDED)
    if isinstance(result, check.Passed):
        assert GUARDED.issues(result.value) == []
        assert isinstance(result.value, dict)
        assert result.value["status"] in ("completed", "failed")


@target("json_schema", raises=[SubletError])
def _json_schema(data: bytes) -> None:
    document = _json(data)
    if isinstance(document, dict):
        schema = CheckedSchema(document)
        for value in ANY_VALUES:
            schema.issues(value)
            repaired(value, schema)


@target(
    "chat_stream",
    "supervisor.chat.reply:read_whole",
    raises=[sse.MalformedReply],
)
def _chat_stream(data: bytes) -> None:
    """The first byte says in which pieces the rest comes; they must not matter."""
    size, raw = (data[0] or 1, data[1:]) if data else (1, b"")
    with contextlib.suppress(sse.MalformedReply):
        reply.read_whole(raw)
    whole = events_of([raw])
    assert events_of(raw[start : start + size] for start in range(0, len(raw), size)) == whole
    builder = reply.ReplyBuilder()
    said = "".join(builder.add(event) for event in whole)
    assert builder.finish().text == said


@target("tool_arguments", "supervisor.chat.arguments:read_arguments", raises=[chat_arguments.BadArguments])
def _tool_arguments(data: bytes) -> None:
    given = chat_arguments.read_arguments(_text(data))
    assert chat_arguments.read_arguments(json.dumps(given)) == given
    endpoint.retry_after(_text(data), 0.0)


@target("kept_conversation", "supervisor.chat.conversations:read_conversation")
def _kept_conversation(data: bytes) -> None:
    conversations.read_conversation(data, "agent")


@target("gateway_lines", "protocol.gateway:decode_gateway", raises=[gateway.MalformedGatewayMessage])
def _gateway_lines(data: bytes) -> None:
    lines = gateway.GatewayLines()
    for line in [*lines.receive(data[:100]), *lines.receive(data[100:] + b"\n")]:
        with contextlib.suppress(gateway.MalformedGatewayMessage):
            message = gateway.decode_gateway(line)
            assert gateway.decode_gateway(gateway.encode_gateway(message)) == message


@target(
    "module_json",
    "policy.capabilities.module_file:parse_module",
    "policy.capabilities.module_file:parse_named",
    "supervisor.gateways.module_file:parse_gateway",
    raises=[SubletError],
)
def _module_json(data: bytes) -> None:
    with contextlib.suppress(SubletError):
        assert "/" not in module_file.parse_module(data, "m").readme_file
    gateway_file.parse_gateway(data, "m")


@target("agent_json", "supervisor.agent_config:load_agents", raises=[SubletError])
def _agents(data: bytes) -> None:
    assert agent_config.load_agents(_file("agent.json", data))


@target("config_json", "daemon.config.config_file:read_config", raises=[SubletError])
def _config(data: bytes) -> None:
    config_file.read_config(_file("config.json", data))


@target(
    "key_files",
    "daemon.peering.identity:load_identity",
    "daemon.peering.identity:load_seed",
    "daemon.peering.identity:load_tls",
    raises=[SubletError],
)
def _keys(data: bytes) -> None:
    """Take the bytes for each of the key files in turn."""
    keys = _scratch() / "keys"
    keys.mkdir(mode=0o700, exist_ok=True)
    for name in ("identity.key", "ssh_host_ed25519_key", "tls.key", "tls.pem"):
        for path in keys.iterdir():
            path.unlink()
        (keys / name).write_bytes(data)
        (keys / name).chmod(0o600)
        with contextlib.suppress(SubletError):
            identity.load_tls(keys, ["localhost"]) if name.startswith("tls") else identity.load_identity(keys)


@target("lock_owner", "daemon.process.lock:_parse")
def _owner(data: bytes) -> None:
    lock._parse(data)


@target("pair_link", "daemon.peering.pair_link:parse_link", raises=[SubletError])
def _link(data: bytes) -> None:
    found = pair_link.parse_link(_text(data))
    assert pair_link.parse_link(str(found)) == found


@target("addresses", "daemon.net.addresses:parse_host_port", raises=[ValueError, SubletError])
def _addresses(data: bytes) -> None:
    known = hosts.AllowedHosts("127.0.0.1", "https://bob.example/")
    assert not known.allows_host(_text(data) + "@evil.example", "127.0.0.1")
    known.allows_origin(_text(data), "127.0.0.1", 1)
    addresses.is_loopback(_text(data))
    addresses.is_wildcard(_text(data))
    with contextlib.suppress(SubletError):
        base_url.check_url(_text(data))
    addresses.parse_host_port(_text(data))


@target("control_answer", raises=[client_http.TransportFailed])
def _control_answer(data: bytes) -> None:
    async def main() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        protocol = h11.Connection(our_role=h11.CLIENT)
        client_http._request(protocol, "GET", "/", None)
        event = await client_http._next(protocol, reader, None)
        while isinstance(event, h11.InformationalResponse):
            event = await client_http._next(protocol, reader, None)
        if isinstance(event, h11.Response):
            answer = client_http.HttpAnswer(event.status_code, client_http._chunks(protocol, reader, None))
            async for line in answer.lines():
                assert "\n" not in line

    asyncio.run(main())


# faces


@target("peer_assertion", "a2a_wire.assertion:read_claim", raises=[assertion.AssertionRejected])
def _assertion(data: bytes) -> None:
    token = _text(data)
    with contextlib.suppress(assertion.AssertionRejected):
        assertion.verify_assertion(token, signer=KEY, audience=PRINT, issuer="node-x", clock=lambda: 1_700_000_000.0)
        raise AssertionError("a token of nobody was believed")
    assertion.read_claim(token)


@target("page_token", "a2a_server.task_store:_read_token", raises=[A2AError])
def _page_token(data: bytes) -> None:
    task_store._read_token(_text(data))


@target("json_rpc_body", "protocol.bounded_json:parse_json")
def _rpc_body(data: bytes) -> None:
    json_rpc.complaint(data, "1.0")


@target("data_part", raises=[RemoteProtocolError])
def _data_part(data: bytes) -> None:
    """Take JSON through protobuf, as it comes by A2A."""
    value = _json(data)
    try:
        part = new_data_part({"awcp": value})
    except (ValueError, TypeError, RecursionError, A2AError):
        return  # the SDK has refused it
    body = parts.find_body([part])
    if body is not None:
        codec.decode(body)


@target(
    "mcp_line",
    "mcp_server.relay_session:parse",
    "mcp_server.relay_session:from_host",
    "mcp_server.relay_session:from_daemon",
)
def _mcp_line(data: bytes) -> None:
    for line in relay_session.Lines().feed(data + b"\n"):
        mcp_connection._message(line)
        if isinstance(line, bytes):
            relay_session.parse(line)
        session = relay_session.RelaySession()
        session.from_host(line)
        with contextlib.suppress(ValueError):
            session.from_daemon(line if isinstance(line, bytes) else b"".join(line))
    relay_session.id_at_end(data, data)


@target("mcp_arguments", "mcp_server.arguments:read_arguments", raises=[SubletError])
def _mcp_arguments(data: bytes) -> None:
    given = _json(data)
    if isinstance(given, dict):
        arguments.read_arguments("delegate", arguments.Delegate, given)


@target("toml_entry", "mcp_server.toml_entry:_parse", raises=[tomllib.TOMLDecodeError])
def _toml(data: bytes) -> None:
    given, path = data.decode("utf-8", "replace"), ("mcp_servers", "sublet")
    made = toml_entry.put_table(given, path, {"command": "uvx", "args": ["sublet", "mcp"]})
    if made is not None:
        assert tomllib.loads(made)["mcp_servers"]["sublet"]["command"] == "uvx"
        left = toml_entry.drop_table(made, path)
        assert left is None or "sublet" not in tomllib.loads(left).get("mcp_servers", {})


@target("option_values", raises=[typer.BadParameter])
def _option_values(data: bytes) -> None:
    given = _text(data)
    for read in (values.duration, values.byte_count, values.address):
        with contextlib.suppress(typer.BadParameter):
            read(given)
    assert values.directory_path(given).startswith(os.sep)
