"""The network of a peer in a process as daemons have it: over links with pinned keys."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sublet.messaging.backends.zenoh_network import Endpoints, ZenohNetwork
from sublet.messaging.links.keys import LinkKeys
from sublet.messaging.links.links import Links

_KEY = Ed25519PrivateKey.from_private_bytes(b"room peers" + bytes(22))
"""All of them have one."""


class PinnedNetwork(ZenohNetwork):
    """Listens and calls where plain endpoints say, over links.

    Args:
        endpoints: ``tcp/HOST:PORT`` each; at most one is called.
    """

    def __init__(self, endpoints: Endpoints) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="bus")
        place, key = Path(self._place.name), _KEY.public_key().public_bytes_raw()
        [address] = map(_address, endpoints.listen)
        with socket.create_server(address) as listener:
            self._pinned = Links(LinkKeys(place / "keys", _KEY), place / "s", listener)
        self._pinned.trust([key])
        doors = [_address(one) for one in endpoints.connect]
        called = self._pinned.call({key: doors} if doors else {})
        super().__init__(Endpoints((self._pinned.inbound(key),), tuple(called.values()), one_pattern=True))

    def close(self) -> None:
        super().close()
        self._pinned.close()
        self._place.cleanup()


def _address(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.partition("/")[2].rpartition(":")
    return host, int(port)
