"""The stage of floods against a relay: its own process, and an honest client that asks it something all the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import asyncssh
import zenoh

from attacks.flood import RelayPlace, Target
from attacks.floods.relay import dialled, honest_pass, registered
from sublet.protocol.relay.slot_keys import Way, wire_key
from support.relay_accounts import Client
from support.relays import relay

ASK_SECONDS = 10.0
PAUSE = 0.2
WANTS = b'{"contacts":[],"rooms":[]}'


class Asking:
    """Asks the relay's hub, and knows the longest answer in seconds; infinite where none came."""

    def __init__(self, session: zenoh.Session, client: Client) -> None:
        self._session = session
        self._client = client
        self._longest = 0.0
        self._since = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def longest(self) -> float:
        """Return what took longest since ``anew``, a question that is not answered yet included."""
        return max(self._longest, time.monotonic() - self._since)

    def anew(self) -> None:
        """Forget what was."""
        self._longest = 0.0

    def begin(self) -> None:
        """Ask from now on."""
        self._thread.start()

    def end(self) -> None:
        """Ask no more."""
        self._over.set()
        self._thread.join(2 * ASK_SECONDS)

    def _run(self) -> None:
        key = wire_key(Way.UP, self._client.slot, "relay/attend")
        while not self._over.wait(PAUSE):
            self._since = begun = time.monotonic()
            replies = list(self._session.get(key, payload=WANTS, timeout=ASK_SECONDS))
            took = time.monotonic() - begun if any(one.ok is not None for one in replies) else float("inf")
            self._longest = max(self._longest, took)
            self._since = time.monotonic()


@dataclass(frozen=True, slots=True)
class RelayStage:
    """A relay that runs.

    Args:
        place: where it is.
        pid: of its process.
        asking: what the honest client does all the time.
        session: its link.
        client: itself.
    """

    place: RelayPlace
    pid: int
    asking: Asking
    session: zenoh.Session
    client: Client

    async def warm_up(self) -> None:
        """Have the honest client make each kind of request."""
        await honest_pass(self.place, self.session, self.client)

    def target(self) -> Target:
        """Return what an attacker knows."""
        nowhere = Path("/nonexistent")
        key = asyncssh.generate_private_key("ssh-ed25519")
        return Target(
            a2a="",
            web=("", 0),
            sftp=("", 0),
            host_key="",
            lease="",
            key=key,
            bus=None,
            peer_home=nowhere,
            agent_socket=nowhere,
            relay=self.place,
        )


@contextmanager
def relay_staged(base: Path) -> Iterator[RelayStage]:
    """Run a relay with an honest client."""
    with relay(base / "relay") as running:
        place = RelayPlace(
            desk=f"https://127.0.0.1:{running.told['registration'].rpartition(':')[2]}",
            hub=running.told["listen"],
            authority=running.authority,
        )
        client, kept = registered(place, "honest")
        mallory, of_mallory = registered(place, "mallory")
        place = replace(place, slot=mallory.slot, kept=of_mallory)
        session = dialled(place, kept)
        asking = Asking(session, client)
        asking.begin()
        try:
            yield RelayStage(place, running.told["pid"], asking, session, client)
        finally:
            asking.end()
            session.close()  # type: ignore[no-untyped-call]
