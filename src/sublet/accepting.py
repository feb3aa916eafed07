"""The one way in which the event loop accepts connections; imports nothing of ours.

asyncio returns at once what is queued already. A loop that accepts would then take a whole queue of callers, and make
for each what serves it, before anybody else has a turn. So each listener takes one connection in a turn of the loop,
which is thousands in a second on an idle loop.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any


async def accept(listener: socket.socket) -> tuple[socket.socket, Any]:
    """Wait for the next connection, and then for everybody else's turn; return it and the caller's address.

    Args:
        listener: listens, and does not block.

    Raises:
        OSError: it was gone at once, or there are no descriptors left.
    """
    made, address = await asyncio.get_running_loop().sock_accept(listener)
    try:
        await asyncio.sleep(0)
    except BaseException:
        made.close()  # cancelled meanwhile: nobody else knows of it
        raise
    return made, address
