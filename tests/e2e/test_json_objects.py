"""The objects that ``docs/cli.md`` promises to scripts, held against the answers of real daemons.

Each name is there, none is there that the page does not tell, and each is filled by some answer, or says here why not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.daemon_rooms import WAIT_SECONDS, shared_room
from support.daemons import Daemon, two_daemons, wait_for
from support.documented_json import lacking, rows, untold
from support.leases import view
from support.pages.fences import ROOT
from support.typed_commands import Typing

pytestmark = pytest.mark.timeout(300)

ELSEWHERE = {
    "`ask`, `answer`": "tests/e2e/test_governed_agents.py",
    "`sessions show`, `create`, `pause`, `resume`, `complete`, `delete`": "tests/e2e/test_sessions.py",
    "`events`": "tests/e2e/test_governed_agents.py",
    "`replay`": "tests/e2e/test_replay.py",
    "`capability list`": "tests/e2e/test_capabilities.py",
    "`capability inspect`": "tests/e2e/test_capabilities.py",
    "`capability verify`": "tests/e2e/test_capabilities.py",
    "`capability run`": "tests/e2e/test_capabilities.py",
    "`gateway list`": "tests/e2e/test_gateways.py",
    "`gateway send`": "tests/e2e/test_gateways.py",
    "`gateway show`, `start`, `stop`": "tests/e2e/test_gateways.py",
    "`approvals`, `approvals list`": "tests/e2e/test_approvals.py",
    "`approvals show`, `approve`, `deny`": "tests/e2e/test_approvals.py",
    "`grants list`": "tests/e2e/test_approvals.py",
    "`grants create`, `revoke`": "tests/e2e/test_approvals.py",
    "`register`": "tests/e2e/test_rooms_over_relay.py",
    "`relay`, `relay run`": "tests/e2e/test_rooms_over_relay.py",
    "`relay init`": "tests/cli/test_relay.py",
    "`relay names`": "tests/e2e/test_rooms_over_relay.py",
    "`relay revoke`": "tests/cli/test_relay.py",
    "`nodes`": "tests/e2e/test_federation.py",
    "`agents --everywhere`": "tests/e2e/test_federation.py",
    '`ask "@AGENT@NODE …"`': "tests/e2e/test_federation.py",
    "`nodes --say`": "tests/e2e/test_panels.py",
    "`nodes --messages`": "tests/e2e/test_panels.py",
    "`delegate --panel`, `cancel PANEL`": "tests/e2e/test_panels.py",
    "`review PANEL`": "tests/e2e/test_panels.py",
    "`apply PANEL`": "tests/e2e/test_panels.py",
    "`discard PANEL`": "tests/e2e/test_panels.py",
    "`device link`": "tests/e2e/test_devices.py",
    "`device add`, `remove`": "tests/e2e/test_devices.py",
    "`device list`": "tests/e2e/test_devices.py",
    "`approver init`, `show`, `change`, `remove`, `reset`": "tests/e2e/test_approvals.py",
}
"""Rows whose commands need a model, a module or a person with a passphrase, with the tests that play those."""


@dataclass
class Played:
    """Answers by the row of the page that tells of them."""

    answers: dict[str, list[Any]] = field(default_factory=dict)

    def __call__(self, start: str, answer: Any) -> Any:
        """Take an answer of the one row that begins so, and return it."""
        (row,) = (row for row in rows() if row.startswith(f"`{start}`"))
        self.answers.setdefault(row, []).append(answer)
        return answer


def lend(alice: Daemon, project: Path, script: str, *options: str) -> Any:
    return alice.json("delegate", str(project), script, "--to", "bob", *options, check=(0, 1))


def of_daemons(take: Played, alice: Daemon, bob: Daemon, tmp_path: Path) -> None:
    take("up --detach", alice.json("status"))
    take("web", alice.json("web"))
    take("doctor", alice.json("doctor", check=None))
    take("pair", bob.json("pair"))
    take("peers list", alice.json("peers"))
    take("token create", bob.json("token", "create", "ci"))
    take("token list", bob.json("token", "list"))
    take("allow", alice.json("allow", str(tmp_path / "project")))
    take("config show", alice.json("config", "show"))
    take("reload", bob.json("reload"))
    take("agents", bob.json("agents"))
    take("agents add", bob.json("agents", "add", "codex", check=None))
    take("sessions list", alice.json("sessions", "list"))
    policy = tmp_path / "policy.json"
    rule: dict[str, Any] = {"id": "no.secrets", "effect": "deny", "action": "tool.call", "resource": "file.*"}
    rule["when"] = {"path": {"within": ["secrets"]}}
    test = {
        "subject": {"kind": "agent", "name": "shell"},
        "action": "tool.call",
        "resource": "file.read",
        "attributes": {"path": "secrets/a"},
        "expect": "deny",
    }
    policy.write_text(json.dumps({"version": 1, "global": [rule], "tests": [test]}))
    take("policy show", alice.json("policy", "show"))
    question = ("--subject", "mcp:claude", "--action", "workspace.lend", "--resource", str(tmp_path))
    take("policy explain", alice.json("policy", "explain", *question, check=None))
    take("policy lint", alice.json("policy", "lint", str(policy), check=None))
    take("policy test", alice.json("policy", "test", str(policy), check=None))
    take("audit verify", alice.json("audit", "verify"))
    alice_home = tmp_path / "home"
    alice_home.mkdir()
    installing = Daemon(alice.home, environ={"HOME": str(alice_home)})
    take("mcp install", installing.json("mcp", "install", "--client", "cursor"))
    take("mcp install", installing.json("mcp", "uninstall", "--client", "cursor"))


def of_leases(take: Played, alice: Daemon, bob: Daemon, project: Path) -> None:
    script = "echo hi > new; sed -i s/1/2/ kept; rm gone; chmod +x kept; mkdir d; echo done"
    begun = alice.json("delegate", str(project), "sleep 600", "--to", "bob/shell", "--background")
    wait_for(lambda: str(view(alice, begun["delegation_id"]).state) == "running", what="the work over there")
    take("delegate", alice.json("say", begun["delegation_id"], "echo more"))
    take("delegate", alice.json("extend", begun["delegation_id"], "--ttl", "40m"))
    take("work", bob.json("work"))
    take("delegate", alice.json("cancel", begun["delegation_id"]))
    terms = ("--writable", "kept", "--no-delete", "--reveal", ".env", "--require-sandbox", "cwd_only")
    take("delegate", lend(alice, project, "echo x >> kept", *terms))
    take(
        "delegate",
        alice.json(
            "delegate", str(project), "true", "--to", "bob", "--deny", "file.write", "--only", "file.*", check=None
        ),
    )
    live = take("delegate", lend(alice, project, script))
    name = live["delegation_id"]
    take("peers add", alice.json("peers", "show", "bob"))
    take("output", alice.json("output", name))
    take("audit", alice.json("audit", name, "--patch"))
    take("audit", alice.json("diff", name))
    take("undo", alice.json("undo", name, check=None))
    staged = lend(alice, project, "echo more >> kept; mkdir e; echo x > e/f; echo ok", "--staged")["delegation_id"]
    (project / "kept").write_text("mine\n")
    take("review", alice.json("review", staged))
    take("apply", alice.json("apply", staged, check=None))
    again = lend(alice, project, "echo z > z", "--staged")["delegation_id"]
    take("apply", alice.json("apply", again))
    other = take("delegate", lend(alice, project, "echo y > y; exit 3", "--staged"))["delegation_id"]
    take("discard", alice.json("discard", other))
    take("delegate", alice.json("cancel", name, check=None))
    take("ls", alice.json("ls", "--all"))
    take("work", bob.json("work", "--all"))
    take("prune", alice.json("prune", "--older-than", "1s", "--dry-run"))
    take("prune", alice.json("prune", "--older-than", "1s"))


def of_rooms(take: Played, alice: Typing, bob: Typing, tmp_path: Path) -> None:
    take("whoami", alice.json("whoami"))
    take("room create", alice.json("room", "create", "Club"))
    room = shared_room(alice, bob)
    his = bob.json("whoami")["entity_id"]
    take("room create", alice.json("room", "invite", "Club", his))
    wait_for(lambda: bob.json("room", "invitations"), WAIT_SECONDS, "the invitation")
    take("room show", alice.json("room", "show", "Club"))
    take("room invitations", bob.json("room", "invitations"))
    take("room accept", bob.json("room", "accept", "Club"))
    (tmp_path / "log.txt").write_text("green")
    ref = take("send", alice.json("send", room, "hello", "--channel", "ops"))["ref_id"]
    file = take("send", alice.json("attach", room, str(tmp_path / "log.txt")))["ref_id"]
    answer = alice.json("send", room, "and more", "--reply-to", ref, "--thread", ref)["ref_id"]
    take("attach ROOM --get REF", alice.json("attach", room, "--get", file, "--output", str(tmp_path / "got")))
    wait_for(lambda: answer in [one["ref_id"] for one in bob.json("read", room)], WAIT_SECONDS, "the messages")
    take("react", alice.json("react", room, ref, "👍"))
    take("react", alice.json("pin", room, ref))
    take("react", alice.json("edit", room, ref, "hello all"))
    take("react", alice.json("edit", room, ref))
    take("react", alice.json("redact", room, answer))
    take("room list", alice.json("room", "list"))
    bob.run("profile", "--set", "display_name=Bob", "--text", "I review.")
    take("profile", bob.json("profile"))
    take("profile", bob.json("search", "review"))
    take("profile", bob.json("search", "--messages", "hello", "--limit", "1"))
    take("channels", alice.json("channels"))
    again = alice.json("attach", room, str(tmp_path / "log.txt"))["ref_id"]
    take("room purge", alice.json("room", "purge", room, again, "--file"))
    wrong = alice.json("send", room, "the key is 4711")["ref_id"]
    take("room purge", alice.json("room", "purge", room, wrong))
    take("read", alice.json("read", room))
    take("read", alice.json("thread", room, ref))
    take("receipts", alice.json("receipts", room, ref))
    take("watch", bob.json("watch", "--since", "0"))
    take("watch set", bob.json("watch", "set", room, ref))
    take("watch set", bob.json("watch", "set", room, "--channel", "ops", "--here"))
    take("watch set", bob.json("watch", "list"))
    take("watch set", bob.json("watch", "unset", room, ref))
    take("text share", alice.json("text", "share", room, ref, "--with", "bob"))
    take("text show", alice.json("text", "show", room, ref))
    take("drafts", alice.json("drafts", room, "to be said", "--reply-to", ref))
    take("drafts", alice.json("drafts"))
    take("presence", alice.json("presence", room))
    closed = alice.json("room", "create", "Knocks", "--policy", "knock")["room_id"]
    bob.run("room", "knock", closed, "let me in")
    wait_for(lambda: alice.json("room", "show", closed)["knocks"], WAIT_SECONDS, "the knock")
    take("room show", alice.json("room", "show", closed))
    take("room show", alice.json("room", "config", room, "--power", f"{his}=10"))


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Play everything once."""
    tmp_path, take = tmp_path_factory.mktemp("json"), Played()
    project = tmp_path / "project"
    project.mkdir()
    for name in ("kept", "gone", ".env"):
        (project / name).write_text("1\n")
    with two_daemons(tmp_path / "d") as (alice, bob):
        of_leases(take, alice, bob, project)
        of_daemons(take, alice, bob, tmp_path)
        of_rooms(take, Typing(alice), Typing(bob), tmp_path)
        take("peers list", alice.json("peers"))
        take("down", bob.json("down"))
    return take


ROWS = rows()
NOT_HERE: dict[str, str] = {
    "`delegate`, `say`, `extend`, `cancel`": (
        "audit.index_marks audit.refs audit.refs_bring audit.unaudited audit_error cautions "
        "error.retry_after_seconds follow_ups.why git_hidden left_behind panel_id result.change_set.branch "
        "result.change_set.branch_error result.change_set.branch_left_out result.highlights result.notes "
        "result.prompts unlocked unmountable"
    ),
    "`peers add`, `show`, `remove`": "agents.description agents.skills agents.why_not clock note rooms was why_not",
    "`output`": (
        "agent audit.index_marks audit.refs audit.refs_bring audit.unaudited audit_error cautions condition "
        "deny error follow_ups git_hidden left_behind only panel_id remaining_seconds result.change_set "
        "result.highlights result.notes result.prompts revealed terms unlocked unmountable writable"
    ),
    "`audit`, `diff`": (
        "by_others directories.mode_before index_marks mode_changed not_kept others_edits refs refs_bring "
        "unaudited unaudited_why"
    ),
    "`undo`": "conflicts",
    "`review`": "bytes directories.mode_before file files.renamed_from left_out unread unread_why",
    "`apply`": "branch commit left_out",
    "`prune`": "counts.assignments counts.sessions counts.shadows",
    "`up --detach`, `status`": "remarks services.failed_at services.last_error stalls",
    "`token create`, `revoke`": "expires_at",
    "`config show`": "problem",
    "`agents`": "agents.denied agents.description agents.detail agents.skills",
    "`sessions list`": "sessions",
    "`policy explain`": "role",
    "`policy show`": "rules.hint",
    "`policy lint`": "problems warnings",
    "`audit verify`": "problem",
    "`room create`, `invite`, `join`, `leave`, `knock`, `decline ROOM ENTITY`, `kick`, `ban`, `unban`": "apart",
    "`profile`, `search`": "messages.attachments messages.receipts next_cursor",
    "`channels`": "name",
    "`read`, `thread`": "about.reply_preview",
    "`receipts`": "recipients.reason",
    "`presence`": "last_active status",
    "`room show`, `room config`": "apart clocks",
    "`policy test`": "problems tests.problem",
}
"""Names that answers here need not fill, or have: they tell of failures, of repositories, or of people who are away, or
belong to options that are not given here. All others are filled."""


def test_every_row_is_played_or_says_where() -> None:
    assert {row: path for row, path in ELSEWHERE.items() if not (ROOT / path).is_file()} == {}
    assert set(ELSEWHERE) < set(ROWS)


@pytest.mark.parametrize("row", [row for row in ROWS if row not in ELSEWHERE])
def test_the_object_is_what_the_page_says(played: Played, row: str) -> None:
    answers = played.answers[row]
    assert untold(ROWS[row], answers) == set(), "the page does not tell of these"
    assert {name for name, _ in lacking(ROWS[row], answers)} - set(NOT_HERE.get(row, "").split()) == set()
