"""How sessions of Zenoh are set up: nothing listens, calls or looks around but where it is told to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import zenoh

from sublet.protocol.ezagent.bundle import MAX_BUNDLE_BYTES

MAX_MESSAGE_BYTES: Final = MAX_BUNDLE_BYTES + (1 << 16)
RETRY: Final = {"period_init_ms": 100, "period_max_ms": 1_000, "period_increase_factor": 1.5}
UPLINK_OPEN_MS: Final = 3_000
"""How long a relay may take to answer; of one that refuses us nothing else tells."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where to listen and whom to call, as Zenoh writes it: sockets of ``messaging.links``, or ``tcp/`` in tests.

    Whoever is reached over ``listen``, ``connect`` or ``multicast`` is ``ANYBODY``. ``multicast`` looks for peers on
    the network, and is off unless asked for. With ``one_pattern`` keys are declared to those at ``listen`` and
    ``connect`` as to a peer.
    """

    listen: tuple[str, ...] = ()
    connect: tuple[str, ...] = ()
    multicast: bool = False
    one_pattern: bool = False


@dataclass(frozen=True, slots=True)
class Uplink:
    """A relay that has given us a slot.

    Args:
        endpoint: where it is, as Zenoh writes it: ``tls/HOST:PORT``.
        slot: ours, which is the common name of the certificate.
        node: our node id.
        certificate: PEM file; read anew whenever the relay is called.
        key: PEM file of its private key.
        authority: PEM file by which the relay is known; None where a public authority knows it.
    """

    endpoint: str
    slot: str
    node: str
    certificate: Path
    key: Path
    authority: Path | None


def peer_config(endpoints: Endpoints) -> zenoh.Config:
    """Return a config that listens and looks only where it is told to; Zenoh's own defaults listen everywhere."""
    return make_config(
        {
            "mode": "peer",
            "listen/endpoints": list(endpoints.listen),
            "connect/endpoints": list(endpoints.connect),
            "connect/exit_on_failure": False,
            "scouting/multicast/enabled": endpoints.multicast,
        }
    )


def uplink_config(uplink: Uplink) -> zenoh.Config:
    """Return a config of a client of a relay, whose name has to be in its certificate."""
    at = "transport/link/tls"
    values: dict[str, object] = {
        "mode": "client",
        "connect/endpoints": [uplink.endpoint],
        "connect/exit_on_failure": True,
        "connect/timeout_ms": UPLINK_OPEN_MS,
        "scouting/multicast/enabled": False,
        f"{at}/enable_mtls": True,
        f"{at}/verify_name_on_connect": True,
        f"{at}/connect_certificate": str(uplink.certificate),
        f"{at}/connect_private_key": str(uplink.key),
    }
    if uplink.authority is not None:
        values[f"{at}/root_ca_certificate"] = str(uplink.authority)
    return make_config(values)


def make_config(values: Mapping[str, object]) -> zenoh.Config:
    """Return a config with these values, and with what all sessions share."""
    config = zenoh.Config()
    common = {
        "connect/retry": RETRY,
        "scouting/gossip/enabled": False,
        "transport/shared_memory/enabled": False,
        "transport/link/rx/max_message_size": MAX_MESSAGE_BYTES,
    }
    for name, value in (common | dict(values)).items():
        config.insert_json5(name, json.dumps(value))
    return config


def open_session(config: zenoh.Config) -> zenoh.Session:
    """Return a session; blocks while it is opened.

    Raises:
        OSError: it can't be opened.
    """
    try:
        return zenoh.open(config)
    except zenoh.ZError as error:
        raise OSError(str(error)) from None
