"""Nodes of federation that reach each other by HTTP alone: their real code, over sockets on loopback."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from sublet.app.node_http import NodeHttp
from sublet.federation.carriers import Carriers
from sublet.federation.node import Around, Federation
from sublet.federation.ports import KnownNode, What
from sublet.federation.settings import Settings
from support.federation_world import Node, World, until


class NoBus:
    """``Carrier`` that reaches nobody."""

    async def ask(self, node: KnownNode, what: What, payload: bytes) -> bytes | None:
        raise AssertionError("nobody is reached")

    def reaches(self, node: KnownNode) -> bool:
        return False


class HttpNode:
    """A node, and its HTTP."""

    def __init__(self, world: World, alias: str, keys_dir: Path, *, tls: bool = True) -> None:
        self.node: Node = world.add(alias)
        self.tls = tls
        self.peers: list[dict[str, object]] = []
        self.listen = "127.0.0.1:0"
        self.set()
        self.http = NodeHttp(self.node.own.key, keys_dir, lambda: self.node.settings, list)
        self.federation = self.node.federation = Federation(
            Around(
                own=self.node.own,
                settings=lambda: self.node.settings,
                known=self.http.listed.known,
                pinned=self.http.listed.pinned,
                agents=lambda: self.node.agents,
                names=self.node.ledger,
                carrier=Carriers(NoBus(), self.http.caller),
                admission=self.node,
                work=self.node,
                ledger=self.node.ledger,
                tell=self.node._tell,
                steady=time.monotonic,
                wall=time.time,
            )
        )
        self.http.begin(self.node.own, self.federation.receive, self.federation.paired)

    @property
    def fingerprint(self) -> str:
        return self.node.own.fingerprint

    def set(self, **http: object) -> None:
        """Have federation.toml say what it says now."""
        said = {"enabled": True, "listen": self.listen, "tls": self.tls} | http
        self.node.settings = Settings.model_validate({"http": said, "peers": self.peers})

    def list(self, name: str, url: str, fingerprint: str, **more: object) -> None:
        """Write a peer into federation.toml, in place of what was said of it."""
        self.peers = [one for one in self.peers if one["node_id"] != name]
        self.peers.append({"node_id": name, "url": url, "fingerprint": fingerprint} | more)
        self.set()
        self.look()

    def look(self) -> None:
        """Read federation.toml anew."""
        self.http.look()
        self.federation.paired()


@asynccontextmanager
async def serving(*nodes: HttpNode) -> AsyncIterator[None]:
    """Run nodes, each of which is listening before the block begins; nobody is listed yet."""
    async with anyio.create_task_group() as group:
        for one in nodes:
            one.node.world.up.add(one.node.alias)
            group.start_soon(one.http.serve)
            group.start_soon(one.federation.serve)
        for one in nodes:
            await until(lambda one=one: one.http.address, "its address")  # type: ignore[misc]
        try:
            yield
        finally:
            group.cancel_scope.cancel()
    for one in nodes:
        await one.http.aclose()


def acquaint(*nodes: HttpNode) -> None:
    """List each in the file of each other one."""
    for one in nodes:
        for other in nodes:
            if other is not one:
                one.list(other.node.own.name, other.http.address, other.fingerprint)


async def know_each_other(*nodes: HttpNode) -> None:
    """Wait until each has told each other one of its agents."""

    def done() -> bool:
        return all(
            len(all_of) == len(nodes) - 1 and all(one.greeted for one in all_of)
            for all_of in (one.federation.neighbours.all() for one in nodes)
        ) and all(len(one.node.addresses()) == len(nodes) - 1 for one in nodes)

    await until(done, "that they know each other")
