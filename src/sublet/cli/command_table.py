"""What commands there are, without loading them: where each one is, and what the list of commands says of it.

A command's module is loaded when it is called, or its help is asked for. A test compares this table with the modules.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info, get_group_from_info
from typer.models import CommandInfo, TyperInfo

from sublet.cli.help import Grouped, Sectioned


@dataclass(frozen=True, slots=True)
class Entry:
    """One command, or one group of them.

    Args:
        panel: the heading under which it is listed.
        where: its module in ``commands``, and its name there: a function, or a group of typer's.
        text: the first sentence of its help.
        epilog: name of the text in its module that ends its help, if any.
    """

    panel: str
    where: str
    text: str
    epilog: str = ""


TABLE: Final[Mapping[str, Entry]] = {
    "up": Entry("Daemon", "daemon.running:up", "Start the daemon.", "UP_EPILOG"),
    "down": Entry("Daemon", "daemon.running:down", "Stop the daemon and wait until it is gone."),
    "status": Entry("Daemon", "daemon.running:status", "Show the daemon at a glance."),
    "reload": Entry("Daemon", "daemon.running:reload", "Read agent.json and policy.json anew, without a restart."),
    "doctor": Entry(
        "Daemon", "daemon.running:doctor", "Check what this machine has and lacks, and say how to mend it."
    ),
    "config": Entry("Daemon", "daemon.config:config", "The configuration: every value, and where it comes from."),
    "web": Entry("Daemon", "daemon.web:web", "Print a link that logs a browser in to the web page."),
    "pair": Entry("Peers", "peers.peers:pair", "Make a one-time link for another daemon to pair with."),
    "peers": Entry("Peers", "peers.peers:peers", "Paired daemons: who may call, and whom you may lend to."),
    "token": Entry("Peers", "peers.peers:token", "Bearer tokens for plain A2A clients."),
    "allow": Entry("Peers", "peers.peers:allow", "Let agents in MCP hosts lend directories below DIR."),
    "delegate": Entry(
        "Lending",
        "lending.delegate:delegate",
        "Lend DIR to a peer's agent, which works in it as PROMPT says.",
        epilog="EPILOG",
    ),
    "ls": Entry("Lending", "lending.delegations:ls", "List the delegations under way; with --all, all that are kept."),
    "attach": Entry("Lending", "lending.attach:attach", "Watch a delegation: its log as it comes, and how it stands."),
    "output": Entry(
        "Lending", "lending.delegations:output", "Show what a delegation printed, and how it stands or ended."
    ),
    "say": Entry("Lending", "lending.steer:say", "Give the agent a further prompt in the same lease."),
    "extend": Entry("Lending", "lending.steer:extend", "Give a delegation more time, as far as both sides allow."),
    "cancel": Entry("Lending", "lending.delegations:cancel", "Stop a delegation: its access is cut at once."),
    "work": Entry(
        "Lending", "lending.delegations:work", "List what this machine does for others, or has done (--all)."
    ),
    "diff": Entry("Results", "results.changes:diff", "Print the patch of what a delegation changed."),
    "review": Entry("Results", "results.review:review", "Print the patch of a staged result, and its conflicts."),
    "apply": Entry("Results", "results.review:apply", "Merge a staged result into the directory."),
    "undo": Entry("Results", "results.review:undo", "Take back what `apply` did, or what a live lease wrote."),
    "discard": Entry("Results", "results.review:discard", "Drop a staged result."),
    "audit": Entry("Results", "results.audit:audit", "Report what a delegation changed; check the log."),
    "prune": Entry("Results", "results.prune:prune", "Forget what is over: delegations, audits, sessions."),
    "ask": Entry("Asking", "asking.ask:ask", "Ask one of your own agents.", "EPILOG"),
    "answer": Entry("Asking", "asking.ask:answer", "Answer the question that a session waits with."),
    "nodes": Entry("Asking", "asking.nodes:nodes", "List this node and the others, and how it stands with each."),
    "agents": Entry("Asking", "asking.agents:agents", "The agents of this daemon, and what each can do."),
    "sessions": Entry("Asking", "asking.sessions:sessions", "What was asked, who did it, and who goes on with what."),
    "room": Entry("Rooms", "rooms.purging:rooms", "Rooms in which people and agents of paired daemons talk."),
    "chat": Entry("Rooms", "rooms.chat:chat", "Talk in a room, live, in this terminal."),
    "send": Entry("Rooms", "rooms.messages:send", "Say something in a room, or to somebody."),
    "read": Entry("Rooms", "rooms.messages:read", "Print the last messages of a room."),
    "thread": Entry("Rooms", "rooms.messages:thread", "Print a thread, or the first messages of all threads."),
    "channels": Entry("Rooms", "rooms.messages:channels", "List the channels of your rooms, the last used first."),
    "watch": Entry("Rooms", "rooms.watch:watch", "What happens in rooms."),
    "receipts": Entry(
        "Rooms", "rooms.receipts:receipts", "Print what became of a message of yours, for each recipient."
    ),
    "presence": Entry("Rooms", "rooms.presence:presence", "Print who is there in a room just now."),
    "drafts": Entry("Rooms", "rooms.presence:drafts", "Print what you have begun to write, or keep it."),
    "search": Entry("Rooms", "rooms.people:search", "Find people by their profiles, or messages by their words."),
    "profile": Entry("Rooms", "rooms.people:profile", "Show a profile, or change yours."),
    "whoami": Entry("Rooms", "rooms.messages:whoami", "Print as whom you speak in rooms; who invites you needs it."),
    "device": Entry("Rooms", "rooms.devices:device", "Your devices: daemons that speak as you, each with its own key."),
    "register": Entry(
        "Relay",
        "relay.register:register",
        "Register a name for this daemon at its relay, which then carries its rooms.",
    ),
    "relay": Entry(
        "Relay", "relay.relay:relay", "Run a relay: it carries rooms between daemons that do not reach each other."
    ),
    "react": Entry("Messages", "rooms.marks:react", "React to a message with an emoji, or take that back."),
    "edit": Entry("Messages", "rooms.marks:edit", "Let a message of yours say something else."),
    "delete": Entry("Messages", "rooms.marks:delete", "Delete a message of yours."),
    "redact": Entry("Messages", "rooms.marks:redact", "Take a message down, as a moderator."),
    "pin": Entry("Messages", "rooms.marks:pin", "Pin a message, as a moderator."),
    "unpin": Entry("Messages", "rooms.marks:unpin", "Pin a message no longer."),
    "text": Entry("Messages", "rooms.text:text", "Texts that several write."),
    "policy": Entry("Governance", "governance.policy:policy", "Tell who may do what, and why."),
    "events": Entry("Governance", "governance.events:events", "Show what has happened, and follow it.", "EPILOG"),
    "replay": Entry(
        "Governance", "governance.replay:replay", "Decide again what was decided in a session, and compare."
    ),
    "capability": Entry(
        "Governance", "governance.capabilities:capability", "Programs that agents may use, told one level at a time."
    ),
    "gateway": Entry("Governance", "governance.gateways:gateway", "Programs that bring requests, and carry answers."),
    "office": Entry(
        "Offices",
        "offices.serve_tools:office",
        "Offices, in which one Agent uses the tools of Computers (A2C-SMCP).",
    ),
    "approvals": Entry("Approving", "approving.approvals:approvals", "Calls of agents that wait for your yes or no."),
    "grants": Entry("Approving", "approving.grants:grants", "What agents may call since you have allowed it."),
    "approver": Entry("Approving", "approving.approver:approver", "Your key for approvals, behind a passphrase."),
    "mcp": Entry("MCP hosts", "daemon.mcp:mcp", "Serve an MCP host on stdio, as the host runs it."),
}
"""In the order of the list."""


class Commands(MutableMapping[str, Any]):
    """The commands by name, each loaded when it is looked up."""

    def __init__(self) -> None:
        self._loaded: dict[str, TyperCommand | TyperGroup] = {}

    def __getitem__(self, name: str) -> TyperCommand | TyperGroup:
        if name not in self._loaded:
            self._loaded[name] = import_command(name, TABLE[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: TyperCommand | TyperGroup) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        raise TypeError("commands are not taken away")

    def __contains__(self, name: object) -> bool:
        return name in TABLE

    def __iter__(self) -> Iterator[str]:
        return iter(TABLE)

    def __len__(self) -> int:
        return len(TABLE)


class Everything(Grouped):
    """The group of all commands, which lists them without loading them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "commands": Commands()})

    def listed(self, limit: int) -> Iterator[tuple[str, str, str]]:
        """``Grouped.listed``."""
        for name, entry in TABLE.items():
            yield entry.panel, name, shortened(entry.text, limit)


def shortened(text: str, limit: int) -> str:
    """Return a sentence as the list of commands shows it, in at most ``limit`` characters."""
    return TyperCommand("", short_help=text, rich_markup_mode=None).get_short_help_str(limit)


def import_command(name: str, entry: Entry) -> TyperCommand | TyperGroup:
    """Import the module of a command and make it."""
    module_name, _, attribute = entry.where.partition(":")
    module = importlib.import_module(f"{__package__}.commands.{module_name}")
    found = getattr(module, attribute)
    if isinstance(found, typer.Typer):
        info = TyperInfo(found, rich_help_panel=entry.panel)
        return get_group_from_info(info, pretty_exceptions_short=True, suggest_commands=True, rich_markup_mode=None)
    epilog = getattr(module, entry.epilog) if entry.epilog else None
    info_of_one = CommandInfo(name, cls=Sectioned, callback=found, epilog=epilog, rich_help_panel=entry.panel)
    return cast("TyperCommand", get_command_from_info(info_of_one, pretty_exceptions_short=True, rich_markup_mode=None))
