"""Connections that the data plane makes, to hosts that a peer has named."""

from __future__ import annotations

import pytest

from sublet.workspace.serving.sockets import connected

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".example"])
async def test_a_host_that_is_no_name_is_not_reached(host: str) -> None:
    with pytest.raises(OSError, match="the name of the host is none"):
        await connected(host, 1)
