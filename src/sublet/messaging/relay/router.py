"""The relay's Zenoh router: mutual TLS, nothing on that is not asked for, and rules that bind slots to certificates.

Access control of Zenoh can't change while it runs, so there are rules for all slots from the start. A sample does not
say who has sent it, but its key does: nobody but the certificate of a slot's name writes below ``up/{slot}/``.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import zenoh

from sublet.messaging.backends.zenoh_config import make_config
from sublet.messaging.relay.authority import ROOT_FILE, SERVER_FILE, SERVER_KEY_FILE
from sublet.protocol.relay.slot_keys import Way, everything, slot_name

BLOCK_MICROSECONDS: Final = 300_000
"""How long a reader that takes nothing holds up whoever writes to it, before its link is cut."""
MAX_KEPT_FREE: Final = 64
"""Links beyond one for each slot: of who comes back before it is noticed that it had gone."""
_UP_IN: Final = ("put", "delete", "query", "liveliness_token")
_DOWN_IN: Final = (
    "declare_subscriber",
    "declare_queryable",
    "reply",
    "liveliness_query",
    "declare_liveliness_subscriber",
)


def open_router(listen: str, directory: Path, slots: int) -> zenoh.Session:
    """Open the router; blocks for some seconds where there are many slots.

    Args:
        listen: where, as Zenoh writes it: ``tls/HOST:PORT``.
        directory: has the certificate of the relay and its authority.
        slots: how many there are.

    Raises:
        OSError: it can't listen there.
    """
    at = "transport/link/tls"
    values: dict[str, object] = {
        "mode": "router",
        "listen/endpoints": [listen],
        "connect/endpoints": [],
        "scouting/delay": 0,
        "scouting/multicast/enabled": False,
        "adminspace/enabled": False,
        "transport/unicast/max_sessions": slots + MAX_KEPT_FREE,
        "transport/unicast/max_links": 1,
        "transport/link/tx/queue/congestion_control/block/wait_before_close": BLOCK_MICROSECONDS,
        f"{at}/root_ca_certificate": str(directory / ROOT_FILE),
        f"{at}/listen_certificate": str(directory / SERVER_FILE),
        f"{at}/listen_private_key": str(directory / SERVER_KEY_FILE),
        f"{at}/enable_mtls": True,
        f"{at}/close_link_on_expiration": True,
        "access_control": access_control(slots),
    }
    try:
        return zenoh.open(make_config(values))
    except zenoh.ZError as error:
        raise OSError(str(error)) from None


def access_control(slots: int) -> Mapping[str, object]:
    """Return the rules for so many slots: each certificate reaches what is below its own, and nothing else."""
    rules: list[dict[str, object]] = []
    policies: list[dict[str, object]] = []
    names = [slot_name(number) for number in range(slots)]
    for name in names:
        own: list[str] = []
        for way, flow, messages in (
            (Way.UP, "ingress", _UP_IN),
            (Way.UP, "egress", ("reply",)),
            (Way.DOWN, "ingress", _DOWN_IN),
            (Way.DOWN, "egress", _UP_IN),
        ):
            own.append(f"{name} {way} {flow}")
            rules.append(
                {
                    "id": own[-1],
                    "permission": "allow",
                    "flows": [flow],
                    "messages": messages,
                    "key_exprs": [everything(way, name)],
                }
            )
        policies.append({"rules": own, "subjects": [name]})
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": rules,
        "subjects": [{"id": name, "cert_common_names": [name]} for name in names],
        "policies": policies,
    }


def kick(session: zenoh.Session, slot: str) -> int:
    """Shut the connections of a certificate, and return how many; blocks on ``/proc`` alone.

    Zenoh has no call for it, but the sockets are this process's own.
    """
    wanted = {link.dst.partition("/")[2] for link in session.info.links() if link.auth_identifier == slot}
    return sum(_shut(int(name), wanted) for name in os.listdir("/proc/self/fd")) if wanted else 0


def _shut(descriptor: int, wanted: set[str]) -> bool:
    with suppress(OSError, ValueError):
        if not stat.S_ISSOCK(os.stat(descriptor).st_mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as one:
            host, port = one.getpeername()[:2]
            if f"{host}:{port}" in wanted or f"[{host}]:{port}" in wanted:
                one.shutdown(socket.SHUT_RDWR)
                return True
    return False
