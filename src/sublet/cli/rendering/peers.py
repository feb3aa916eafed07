"""What people see of peers, tokens, the daemon and its checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sublet.cli.rendering.columns import Columns, inset
from sublet.cli.rendering.delegations import local_time, span
from sublet.cli.rendering.words import whole_line
from sublet.protocol.text import clean

if TYPE_CHECKING:
    from sublet.cli.rendering.screen import Symbols
    from sublet.daemon.api.daemon import Check, ServiceView, StatusView
    from sublet.daemon.api.peers import PairLinkView, PeerView
    from sublet.daemon.api.tokens import TokenView


def peer_table(known: Sequence[PeerView]) -> RenderableType:
    """Return for each peer its name, where it is, its agents, and whether it can be used, or why not."""
    rows = []
    for peer in known:
        usable = Text("yes", style="green") if peer.usable else Text(f"no: {whole_line(peer.why_not)}", "yellow")
        agents = ", ".join(whole_line(agent.id) for agent in peer.agents)
        rows.append([Text(peer.name), Text(_address(peer)), Text(agents), usable])
    return Columns(("name", "address", "agents", "usable"), rows)


def link_table(made: Sequence[PairLinkView]) -> RenderableType:
    """Return the pairing links as a table."""
    rows = [[Text(one.id), Text(local_time(one.made_at)), Text(whole_line(one.made_by)), use_of(one)] for one in made]
    return Columns(("link", "made", "by", "used"), rows)


def use_of(link: PairLinkView) -> Text:
    """Return what became of a pairing link, in one line."""
    if link.fingerprint is None:
        words = f"until {local_time(link.expires_at)}" if link.state == "open" else "by nobody, and can't be any more"
        return Text(words, style="dim")
    who = whole_line(link.peer) if link.peer else "a daemon that is removed"
    return Text(f"by {who}, {local_time(link.used_at or link.made_at)}, key {whole_line(link.fingerprint)}")


def peer_details(peer: PeerView) -> RenderableType:
    """Return all that is known of one peer."""
    facts = [
        ("name", peer.name),
        ("node", peer.node_id),
        ("key", peer.fingerprint),
        ("address", _address(peer)),
        ("paired", local_time(peer.paired_at)),
        ("usable", "yes" if peer.usable else f"no: {whole_line(peer.why_not)}"),
    ]
    if peer.note:
        facts.append(("name from", whole_line(peer.note)))
    if peer.rooms:
        facts.append(("rooms", f"none: {whole_line(peer.rooms)}"))
    if peer.clock:
        facts.append(("clock", whole_line(peer.clock)))
    parts: list[RenderableType] = [_facts(facts)]
    if peer.agents:
        parts.append(Text("  agents (in the peer's own words)", style="dim"))
        grid = Table.grid(padding=(0, 2))
        for agent in peer.agents:
            skills = f" [{', '.join(whole_line(skill) for skill in agent.skills)}]" if agent.skills else ""
            about = Text(whole_line(agent.description) + skills, "dim")
            if agent.takes:
                about.append(f" (takes {whole_line(agent.takes)})")
            if agent.why_not:
                about.append(f" can't work: {whole_line(agent.why_not)}", style="red")
            grid.add_row(Text(whole_line(agent.id)), about)
        parts.append(inset(grid, 4))
    return Group(*parts)


def token_table(known: Sequence[TokenView]) -> RenderableType:
    """Return for each token its name, when it was made and when it ends; never the token itself."""
    facts = [
        (entry.name, local_time(entry.created_at), local_time(entry.expires_at) if entry.expires_at else "when revoked")
        for entry in known
    ]
    return Columns(("name", "made", "ends"), [[Text(fact) for fact in row] for row in facts])


def status_details(status: StatusView, symbols: Symbols) -> RenderableType:
    """Return the daemon at a glance."""
    head = Text.assemble((f"{symbols.good} running", "bold green"))
    head.append(f" {symbols.dot} pid {status.pid} {symbols.dot} {status.version}", style="dim")
    head.append(f" {symbols.dot} up {span(status.uptime_seconds)}", style="dim")
    work = ", ".join(f"{number} {state}" for state, number in status.delegations.items() if number) or "none"
    facts = [
        ("node", status.node_id),
        ("key", status.fingerprint),
        ("a2a", status.a2a_url),
        ("sftp", status.sftp),
        ("bus", status.bus or "no port is free"),
        ("web page", f"{status.web}/ (log in: sublet web)" if status.web else "off"),
        ("config", status.config_dir or status.home),
        ("state", status.state_dir or status.home),
        ("peers", str(status.peers)),
        ("rooms", "ezagent " + ("below level 0" if status.ezagent_level is None else f"level {status.ezagent_level}")),
        ("delegations", work),
        ("working for others", f"{status.assignments_active} of {status.slots} slots"),
        ("agents", ", ".join(whole_line(agent) for agent in status.agents) or "none"),
        ("sandbox", status.sandbox or "none"),
        ("limits", f"held by {status.limits}" if status.limits else "none"),
        ("lost mounts", status.mount_guard or "not known"),
        ("enforced", ", ".join(whole_line(item) for item in status.enforced) or "nothing"),
    ]
    lines = [*status.remarks, *_failures(status.services), *_stall(status)]
    remarks = [inset(Text(whole_line(line), style="yellow"), 2) for line in lines]
    return Group(head, _facts(facts), *remarks)


def _failures(services: Sequence[ServiceView]) -> Iterator[str]:
    """Yield a line for each service that has failed; what it says may be a peer's."""
    for one in services:
        if not one.last_error:
            continue
        again = f"was started again {one.restarts} {'time' if one.restarts == 1 else 'times'}"
        how = again if one.state == "running" else f"is down for now and {again}"
        yield f"the service {one.name} {how}: {one.last_error}"


def _stall(status: StatusView) -> Iterator[str]:
    """Yield a line for the newest time in which the daemon served nobody else."""
    if status.stalls:
        newest = status.stalls[0]
        ran = f" in {newest.ran}" if newest.ran else ""
        count = f", the last of {status.stall_count}" if status.stall_count > 1 else ""
        yield f"the daemon stood still for {newest.milliseconds} ms{ran} ({local_time(newest.at)}{count})"


def check_lines(checks: Sequence[Check], symbols: Symbols) -> RenderableType:
    """Return the checks of ``doctor``, each failed one with the way to mend it."""
    parts: list[RenderableType] = []
    wide = max((len(check.name) for check in checks), default=0)
    for check in checks:
        sign = (symbols.good, "green") if check.ok else (symbols.bad, "red")
        line = Text.assemble(
            sign, f" {check.name.ljust(wide)}  ", (whole_line(check.detail), "" if check.ok else "bold")
        )
        if check.required_for and not check.ok:
            line.append(f"  (needed for {check.required_for})", style="dim")
        parts.append(line)
        if check.fix and not check.ok:
            parts.append(inset(Text(clean(check.fix)), wide + 4))
    return Group(*parts)


def _address(peer: PeerView) -> str:
    return whole_line(peer.a2a_url) if peer.a2a_url else "can't be called from here"


def _facts(facts: Sequence[tuple[str, str]]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts:
        grid.add_row(name, Text(value))
    return inset(grid, 2)
