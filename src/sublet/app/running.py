"""Starts the daemon, keeps it running until it is told to stop, and stops it in order (DESIGN 3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from sublet.app.stores import FACE_STORES
from sublet.daemon.api.daemon import StatusView
from sublet.daemon.config.daemon_config import DaemonConfig
from sublet.daemon.peering.identity import load_identity
from sublet.daemon.process.endings import Ending, Stop
from sublet.daemon.process.lock import InstanceLock
from sublet.daemon.process.own_home import own_token, problem
from sublet.daemon.process.stop_limit import StopLimit
from sublet.daemon.storage.state import STORE, take_up
from sublet.daemon.storage.store import Store
from sublet.daemon.tasks.failures import sole_failure
from sublet.protocol.errors import SubletError
from sublet.tasks import Services


async def run_daemon(
    config: DaemonConfig, ready: Callable[[StatusView], None] = lambda _: None, limit: type[StopLimit] | None = None
) -> None:
    """Run the daemon until SIGTERM, SIGINT or ``shutdown``.

    Args:
        config: how.
        ready: is called once it can be talked to.
        limit: ends the process where the stop hangs; None where the process is not the daemon's alone.

    Raises:
        SubletError: ``ALREADY_RUNNING``, ``UNAVAILABLE``, ``STATE_VERSION``, ``INVALID_ARGUMENT`` or ``DEP_MISSING``
            where it can't start.
    """
    config.home.make()
    with InstanceLock.acquire(config.home) as lock:
        try:
            state_dir, services = Path(config.home.state_dir), Services()
            cut = None if limit is None else limit(health=lambda: services.health)
            stop = Stop(lambda failed: None if cut is None else cut.begin(int(failed)))
            stop.time.use()
            if (copied := await asyncio.to_thread(problem, state_dir)) is not None:
                raise copied  # before anything in it is changed
            await asyncio.to_thread(take_up, state_dir, version("sublet"), FACE_STORES)
            token = await asyncio.to_thread(own_token, state_dir)
            identity = replace(load_identity(state_dir / "keys"), home=token.said)
            store = await Store.open(state_dir / STORE, lambda: stop.now(Ending.STORE_BROKEN))
            try:
                # All that a daemon consists of: a second start, which is refused before, does without.
                from sublet.app.daemon import Daemon

                with sole_failure(SubletError):
                    await Daemon(config, identity, store, lock, stop, services).run(ready)
            finally:
                await store.close()
        finally:
            config.home.clean_up()
