"""What every area stands on: configuration, store and journal, keys, and what is known of who works and who asks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sublet.daemon.audit_log.log import AuditLog
from sublet.daemon.config.daemon_config import DaemonConfig
from sublet.daemon.control.callers import Callers
from sublet.daemon.net.last_ports import LastPorts
from sublet.daemon.peering.identity import Identity, TlsFiles
from sublet.daemon.peering.pairing import OwnAddress
from sublet.daemon.process.endings import Stop
from sublet.daemon.process.kept_face import Place
from sublet.daemon.process.opened import Opened
from sublet.daemon.process.places import Places
from sublet.daemon.rooms.bus_port import BusPort
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.store import Store
from sublet.daemon.supervising.offer import Offer
from sublet.disk.set_aside import SetAside
from sublet.supervisor.processes import ProcessOwners
from sublet.tasks import Services


@dataclass(frozen=True, slots=True)
class Ground:
    """What all areas share.

    Args:
        config: what was configured.
        identity: the daemon's keys.
        tls: the certificate that faces are served with; None on loopback.
        store: the open database.
        journal: what happens, and what is under way.
        aside: takes what can't be used or removed.
        audit_log: is told every decision.
        services: keeps what parts run for as long as they live.
        stop: ends the daemon.
        places: where its faces are.
        last_ports: those of the start before.
        bus_port: where paired daemons reach rooms here.
        offer: which agents are offered; the area of agents fills it.
        owners: whose processes run here.
        callers: who is at the other end of our sockets.
        opened: closes what the areas open, the last first, however far the start has come.
    """

    config: DaemonConfig
    identity: Identity
    tls: TlsFiles | None
    store: Store
    journal: Journal
    aside: SetAside
    audit_log: AuditLog
    services: Services
    stop: Stop
    places: Places
    last_ports: LastPorts
    bus_port: BusPort
    offer: Offer
    owners: ProcessOwners
    callers: Callers
    opened: Opened

    @property
    def state_dir(self) -> Path:
        """What the daemon keeps."""
        return Path(self.config.home.state_dir)

    @property
    def config_dir(self) -> Path:
        """What its owner writes."""
        return Path(self.config.home.config_dir)

    @property
    def scratch_root(self) -> Path:
        """Below which work has its private directories."""
        return self.state_dir / "scratch"

    @property
    def own_dirs(self) -> tuple[Path, ...]:
        """The daemon's directories, which are never lent and never shown to an agent."""
        return (self.config_dir, self.state_dir, Path(self.config.home.runtime_dir), self.config.mount_root)

    def own_address(self) -> OwnAddress:
        """Return how this daemon is reached, once its faces have started."""
        return OwnAddress(self.places.a2a.address, self.tls.certificate_pem if self.tls else None)


def lay(
    config: DaemonConfig,
    identity: Identity,
    tls: TlsFiles | None,
    store: Store,
    audit_log: AuditLog,
    services: Services,
    stop: Stop,
    last_ports: LastPorts,
    opened: Opened,
) -> Ground:
    """Return the ground of a daemon: nothing runs yet. See ``Ground`` for the arguments.

    Raises:
        SubletError: ``UNAVAILABLE`` where a port that was chosen for the bus can't be had.
    """
    aside, owners = SetAside(Path(config.home.state_dir)), ProcessOwners()
    bus_port = BusPort(config.bus, last_ports.bus)
    opened.close_by(bus_port.close)
    return Ground(
        config=config,
        identity=identity,
        tls=tls,
        store=store,
        journal=Journal(store, aside),
        aside=aside,
        audit_log=audit_log,
        services=services,
        stop=stop,
        places=Places(Place(), Place(), Place(), Place() if config.web is not None else None),
        last_ports=last_ports,
        bus_port=bus_port,
        offer=Offer(),
        owners=owners,
        callers=Callers(owners, identity.node_id),
        opened=opened,
    )
