"""What all sessions of Zenoh share: how long somebody who takes nothing holds up everybody else."""

from __future__ import annotations

import json
from pathlib import Path

from sublet.messaging.backends.zenoh_config import (
    BLOCK_MICROSECONDS,
    Endpoints,
    Uplink,
    make_config,
    peer_config,
    uplink_config,
)


def test_who_takes_nothing_holds_up_no_session_for_long() -> None:
    uplink = Uplink("tls/relay.test:7448", "s00000", "node-x", Path("/c.pem"), Path("/c.key"), None)
    at = "transport/link/tx/queue/congestion_control/block/wait_before_close"
    for config in (uplink_config(uplink), peer_config(Endpoints()), make_config({"mode": "router"})):
        assert json.loads(config.get_json(at)) == BLOCK_MICROSECONDS == 300_000
