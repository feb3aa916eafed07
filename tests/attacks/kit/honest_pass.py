"""Each kind of request that floods consist of, once and as an honest program makes it.

A daemon loads some of its code at the first request that needs it. After this pass what a flood leaves is the flood's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import uuid

import asyncssh
import httpx
from nacl.signing import SigningKey

from attacks.flood import Target
from attacks.floods import bus, federation, net, offices, talk
from attacks.kit.caller import address_of, caller
from attacks.kit.executor import CLOSE, OPENDIR, READDIR, STAT, connected, extended, hose, on_handle, rename
from attacks.kit.neighbour import identity_key
from sublet.messaging.ports.network import Priority, Qos
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.envelope import seal
from support.office_client import Client, serving
from support.sftp_client import NO_ATTRIBUTES, string
from support.worker import invite

READ, WRITE, MKDIR, OPEN = 5, 6, 14, 3
HERE = b"/workspace/"
LINES = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},'
    b'"clientInfo":{"name":"honest","version":"1"}}}\n',
    b"\n",
    b"no JSON\n",
    b"[[1]]\n",
)
LINE_SECONDS = 0.5


async def honest_pass(target: Target) -> None:
    """Do all of it, one after the other."""
    await _files(target)
    for _ in range(2):
        with contextlib.suppress(asyncssh.Error, OSError):
            async with connected(target, client_keys=[asyncssh.generate_private_key("ssh-ed25519")]):
                pass
    await _calls(target)
    await _bus(target)
    if target.office.url:
        await _office(target)
    if target.bus is not None:
        for says in (federation.nobodys, federation.registrations, federation.heartbeats, federation.tasks):
            await federation.flooding(says, rounds=2)(target)


async def _office(target: Target) -> None:
    """Show a token that is none, join as both, call, be answered, and leave."""
    for token in ("sblt_no", target.office.agent):
        async with offices.opened(target) as socket:
            client = Client(socket)
            await client.frame()
            await client.authenticate(token)
    place = target.office
    async with offices.opened(target) as one, offices.opened(target) as other:
        agent = await offices.joined(one, place.agent, "mallory", "agent", place.office_id)
        machine = await offices.joined(other, place.computer, "machine", "computer", place.office_id)
        await machine.call("server:update_tool_list", {"computer": "machine"})
        machine.answers = {"client:tool_call": {"content": [], "isError": False}}
        async with serving(machine):
            for params in ({}, offices.MANY, {"text": offices.BLOB}):
                await agent.use("t", "machine", "mallory", params=params)


async def _files(target: Target) -> None:
    """Work in the lent directory."""
    async with connected(target) as connection:
        one = await hose(connection)
        await one.ask(MKDIR, string(HERE + b"honest") + NO_ATTRIBUTES)
        opened = await one.ask(OPEN, string(HERE + b"honest/file") + struct.pack(">II", 1 | 2 | 8, 0))
        await one.ask(WRITE, string(opened.handle) + struct.pack(">Q", 0) + string(bytes(65_536)))
        await one.ask(READ, string(opened.handle) + struct.pack(">QI", 0, 65_536))
        listed = await one.ask(OPENDIR, string(HERE + b"large"))
        requests = (
            extended(b"fsync@openssh.com", opened.handle),
            on_handle(CLOSE, opened.handle),
            *[on_handle(READDIR, listed.handle)] * 2,
            on_handle(CLOSE, listed.handle),
            rename(HERE + b"honest/file", HERE + b"honest/renamed"),
            extended(b"statvfs@openssh.com", HERE),
        )
        for request in requests:
            answers = one.answers
            one.send(request)
            await one.until(answers + 1)
        await one.ask(STAT, string(HERE + b"link-3"))


async def _calls(target: Target) -> None:
    """Ask for the card, call without a token and with an unknown one, send messages, invite, and use the socket."""
    peer, link, sign = net._peer(target)
    try:
        async with httpx.AsyncClient(base_url=target.a2a, trust_env=False, timeout=20) as http:
            await http.get(net.CARD.decode())
            kind = {"Content-Type": "application/json", "A2A-Version": "1.0"}
            message = {
                "messageId": uuid.uuid4().hex,
                "role": "ROLE_USER",
                "parts": [{"data": {"a": [1, "x" * 70_000]}}],
            }
            call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
            for token in (uuid.uuid4().hex, sign()):
                for body in (json.dumps(call), json.dumps({**call, "params": [0] * 600}), "[" * 100, "no JSON"):
                    headers = {**kind, "Authorization": f"Bearer {token}"}
                    with contextlib.suppress(httpx.HTTPError):  # who is not known may not send as much
                        await http.post("/", content=body, headers=headers)
            with contextlib.suppress(httpx.HTTPError):
                await http.post("/", content="{}", headers=kind)
        async with caller(address_of(target.a2a)) as one:
            await one.say(
                b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
            )
            await one.answer()
        with contextlib.suppress(SubletError):
            await link.invite(peer, invite(f"dlg_{uuid.uuid4().hex}", ttl_seconds=1))
    finally:
        await link.aclose()
    for line in LINES:
        async with caller(str(target.agent_socket)) as one:
            await one.say(line)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(one.reader.read(65_536), LINE_SECONDS)


async def _bus(target: Target) -> None:
    """Greet the bus, and say one thing on it that nobody can verify."""
    if target.bus is None:
        return
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(bus.silence(target), LINE_SECONDS)
    key = identity_key(target.peer_home)
    link = await asyncio.to_thread(bus._link, target, key)
    name = f"ezagent/{uuid.uuid4()}/config"
    raw = seal(SigningKey(key.private_bytes_raw()), "@honest:x", name, 1, b"x").raw
    link.publish(f"{name}/updates", raw, b"", Qos(Priority.DATA, droppable=True))
    await asyncio.to_thread(link.close)
    for said in talk.MEMBERS if target.content else ():
        await said(target, 1)
