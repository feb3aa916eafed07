"""Makes periodic indexes anew from time to time; on the event loop."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import structlog

from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.engine.calling import CallEngine
from sublet.protocol.ezagent.ids import SYSTEM_ENTITY

log = structlog.get_logger(__name__)


async def rebuild_again(call: CallEngine, rebuild: Callable[[OperationContext], None], every_seconds: float) -> None:
    """Make an index anew from time to time, until cancelled; one that fails is tried again the next time."""
    while True:
        try:
            await call(lambda engine: rebuild(OperationContext(engine.operating, SYSTEM_ENTITY)))
        except Exception:
            log.exception("an index could not be made anew")
        await anyio.sleep(every_seconds)
