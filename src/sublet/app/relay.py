"""The relay's process: its parts put together, and run until it is told to stop (DESIGN 3).

It stands beside the daemon and has none of it: no home, no peers, no rooms of its own.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import structlog
from nacl.signing import SigningKey

from sublet.daemon.net.http_connection import DeadlineProtocol
from sublet.daemon.net.http_server import QuietServer, server_config
from sublet.daemon.net.tcp_socket import listen_tcp
from sublet.daemon.peering.identity import load_seed
from sublet.messaging.relay.authority import SERVER_FILE, SERVER_KEY_FILE, Authority
from sublet.messaging.relay.buckets import Buckets
from sublet.messaging.relay.desk import LEVEL, TIERS, Desk
from sublet.messaging.relay.hub import Hub
from sublet.messaging.relay.registry import Registry
from sublet.messaging.relay.router import open_router
from sublet.messaging.relay.senders import Senders
from sublet.messaging.relay.settings import SETTINGS_FILE, RelaySettings, read_settings, write_settings
from sublet.messaging.relay.store import STORE_FILE, SqliteRelayStore
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.relay.errors import RelayRefusal

KEY_FILE: Final = "relay.key"
LOCK_FILE: Final = "lock"
LOOK_SECONDS: Final = 0.2
"""How often the relay looks for names that its operator has revoked, and for other settings."""
MAX_CONNECTIONS: Final = 256
MAX_HEAD_BYTES: Final = 8 << 10
PAIR_TRIES: Final = 64
DRAIN_SECONDS: Final = 2

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RelayPlaces:
    """Where a relay listens.

    Args:
        host: an address, of the router.
        port: of the router; 0 is any free one.
        desk: address and port of registration; None for the port after the router's.
    """

    host: str
    port: int
    desk: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class RelayReady:
    """A relay that runs."""

    domain: str
    listen: str
    registration: str
    authority: str
    level: int
    tiers: list[int]
    pid: int


def init_relay(directory: Path, settings: RelaySettings) -> Path:
    """Make a relay's directory, with its authority, its keys and its settings; return the file of the authority.

    Raises:
        SubletError: ``CONFLICT`` where there is one already; ``UNAVAILABLE`` where it can't be written.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
        write_settings(directory, settings)
        authority = Authority.make(directory, settings.domain)
        authority.renew_server([settings.domain, *settings.hosts])
        load_seed(directory / KEY_FILE)
    except FileExistsError:
        raise SubletError(
            LocalCode.CONFLICT, f"there is a relay in {directory} already", "Run it, or choose another directory."
        ) from None
    except OSError as error:
        raise SubletError(
            LocalCode.UNAVAILABLE, f"{directory} can't be written: {error.strerror}", "Choose another directory."
        ) from None
    return authority.file


async def run_relay(directory: Path, places: RelayPlaces, ready: Callable[[RelayReady], None]) -> None:
    """Run a relay until SIGTERM or SIGINT.

    Args:
        directory: as ``init_relay`` has made it.
        places: where it listens.
        ready: is called once clients can come.

    Raises:
        SubletError: ``NOT_FOUND``, ``INVALID_ARGUMENT``, ``ALREADY_RUNNING``, ``STATE_VERSION`` or ``UNAVAILABLE``
            where it can't start.
    """
    settings = await asyncio.to_thread(read_settings, directory)
    with _alone(directory):
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        relay = await asyncio.to_thread(_Relay, directory, settings, places)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(relay.serve_desk)
                group.start_soon(relay.look)
                ready(relay.told)
                await stopping.wait()
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await asyncio.to_thread(relay.close)


def revoke_name(directory: Path, name: str) -> None:
    """Revoke a name, whether the relay runs or not; one that runs cuts its client within ``LOOK_SECONDS``. Blocks.

    Raises:
        SubletError: ``NOT_FOUND`` where there is no such relay or name.
    """
    settings = read_settings(directory)
    registry, store = _registry(directory, settings, lambda: settings)
    try:
        registry.revoke(name)
    except RelayRefusal as refusal:
        raise SubletError(LocalCode.NOT_FOUND, refusal.message, "See sublet relay names.") from None
    finally:
        store.close()


def names_of(directory: Path) -> list[dict[str, str | bool | int]]:
    """Return the names of a relay, as its operator sees them. Blocks.

    Raises:
        SubletError: ``NOT_FOUND`` where there is no relay.
    """
    read_settings(directory)
    store = SqliteRelayStore(directory / STORE_FILE)
    try:
        return [
            {
                "name": one.name,
                "node_id": one.node_id,
                "version": one.version,
                "registered_at": one.registered_at,
                "revoked": one.revoked,
            }
            for one in sorted(store.accounts(), key=lambda one: one.name)
        ]
    finally:
        store.close()


class _Relay:
    """The parts of a relay that runs. Making it blocks, for some seconds where there are many slots."""

    def __init__(self, directory: Path, settings: RelaySettings, places: RelayPlaces) -> None:
        self._directory = directory
        self._settings = settings
        self._stamp = _stamp(directory)
        authority = _authority(directory, settings)
        self._registry, self._store = _registry(directory, settings, lambda: self._settings)
        self._senders = Senders(settings.rate)
        self._callers = Buckets(settings.desk_rate)
        try:
            self._listening, port = _desk_socket(places)
            self._session = open_router(f"tls/{_shown(places.host, port)}", directory, settings.slots)
        except OSError as error:
            self._store.close()
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"can't listen on {_shown(places.host, places.port)} and the port of registration: {error}",
                "Choose other addresses with --listen and --registration; port 0 takes any free ones.",
            ) from None
        self._hub = Hub(self._session, self._registry, self._senders)
        self._desk = Desk(self._registry, self._callers, lambda: not self._session.is_closed(), self._figures)
        desk = _shown(*self._listening.getsockname()[:2])
        listen = f"tls/{_shown(places.host, port)}"
        self.told = RelayReady(
            settings.domain, listen, f"https://{desk}", str(authority.file), LEVEL, list(TIERS), os.getpid()
        )

    async def serve_desk(self) -> None:
        """Answer on the registration port until cancelled."""
        config = server_config(
            self._desk.app,
            DeadlineProtocol,
            connections=MAX_CONNECTIONS,
            head_bytes=MAX_HEAD_BYTES,
            drain_seconds=DRAIN_SECONDS,
            certificate=self._directory / SERVER_FILE,
            key=self._directory / SERVER_KEY_FILE,
        )
        await QuietServer(config).serve_until_cancelled(self._listening, lambda: None)

    async def look(self) -> None:
        """Take what the operator changes, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await asyncio.to_thread(self._look)
            except (OSError, SubletError) as error:
                log.warning("what has changed could not be read, which is tried again", reason=str(error))

    def close(self) -> None:
        """End all links, and close the store. Blocks."""
        self._hub.close()
        with suppress(Exception):  # zenoh has no errors of its own for a session that is closed
            self._session.close()  # type: ignore[no-untyped-call]
        self._listening.close()
        self._store.close()

    def _look(self) -> None:
        self._registry.look_again()
        self._hub.tick()
        stamp = _stamp(self._directory)
        if stamp != self._stamp:
            self._stamp = stamp
            changed = read_settings(self._directory)
            self._settings = changed
            self._senders.change(changed.rate)
            self._callers.rate = changed.desk_rate
            log.info("other settings are in force")

    def _figures(self) -> Mapping[str, float]:
        counts, (waiting, waiting_bytes) = self._hub.counts, self._hub.forwarder.waiting()
        return {
            "clients": self._hub.linked(),
            "accounts": len(self._registry.accounts),
            "slots": self._registry.slots.count,
            "slots_taken": self._registry.slots.taken(),
            "rooms": len(self._registry.rooms),
            "tokens": self._hub.tokens.count(),
            "messages_total": counts.forwarded,
            "deliveries_total": counts.delivered,
            "questions_total": counts.asked,
            "refused_total": counts.refused,
            "kicked_total": counts.kicked,
            "dropped_total": self._senders.dropped + self._hub.forwarder.lost,
            "waiting": waiting,
            "waiting_bytes": waiting_bytes,
        }


def _authority(directory: Path, settings: RelaySettings) -> Authority:
    try:
        authority = Authority.load(directory)
        authority.renew_server([settings.domain, *settings.hosts])
    except (OSError, ValueError, TypeError) as error:
        raise SubletError(
            LocalCode.UNAVAILABLE,
            f"the certificates in {directory} can't be used: {error}",
            "Restore them from a backup; a new authority is unknown to all clients.",
        ) from None
    return authority


def _registry(
    directory: Path, settings: RelaySettings, now: Callable[[], RelaySettings]
) -> tuple[Registry, SqliteRelayStore]:
    """Return the registry of a relay, and its store, which the caller closes."""
    key = SigningKey(load_seed(directory / KEY_FILE))
    authority = _authority(directory, settings)
    store = SqliteRelayStore(directory / STORE_FILE)
    try:
        return Registry(settings.domain, key, authority, store, settings.slots, lambda: now().terms), store
    except BaseException:
        store.close()
        raise


def _desk_socket(places: RelayPlaces) -> tuple[socket.socket, int]:
    """Return the socket of the registration port, and the port of the router.

    Raises:
        OSError: it can't be listened on, or no two ports in a row are free.
    """
    if places.desk is not None:
        return listen_tcp(*places.desk, MAX_CONNECTIONS), places.port or _free_port(places.host)
    if places.port:
        return listen_tcp(places.host, places.port + 1, MAX_CONNECTIONS), places.port
    for _ in range(PAIR_TRIES):
        port = _free_port(places.host)
        with suppress(OSError, OverflowError):
            return listen_tcp(places.host, port + 1, MAX_CONNECTIONS), port
    raise OSError("no two ports in a row are free")


def _free_port(host: str) -> int:
    with listen_tcp(host, 0, 1) as probe:
        return int(probe.getsockname()[1])


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _stamp(directory: Path) -> tuple[int, int, int]:
    """Return what changes with ``relay.json``."""
    found = (directory / SETTINGS_FILE).stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Hold the lock of a relay's directory.

    Raises:
        SubletError: ``ALREADY_RUNNING``.
    """
    with (directory / LOCK_FILE).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SubletError(
                LocalCode.ALREADY_RUNNING, f"the relay in {directory} runs already", "Stop it, or use that one."
            ) from None
        yield
