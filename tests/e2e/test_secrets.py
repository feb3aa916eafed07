"""Secrets stay where they belong: not in logs, databases, audits or argument lists (DESIGN 9)."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

import httpx
import psutil

from support.daemons import SHELL_AGENT, Daemon, wait_for
from support.leases import begin, finish


def test_secrets_are_in_no_log_no_database_and_no_argument(tmp_path: Path) -> None:
    lender, worker = Daemon(tmp_path / "a"), Daemon(tmp_path / "b")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    try:
        lender.up("--log-level", "debug")
        worker.up("--log-level", "debug", agent=SHELL_AGENT)
        link = str(worker.json("pair")["link"])
        spare = str(worker.json("pair")["link"])
        token = str(worker.json("token", "create", "ci")["token"])
        lender.run("peers", "add", link, "--name", "bob")
        lender.run("peers", "add", link, "--name", "bob", check=(5,))
        command_lines: list[str] = []
        delegation = begin(lender, workspace, "echo > begun; sleep 2")
        wait_for(lambda: (workspace / "begun").exists(), 30, "the work")
        for process in psutil.process_iter(["cmdline"]):
            command_lines += process.info["cmdline"] or []
        finish(lender, delegation)
        body = {"jsonrpc": "2.0", "id": token, "method": "message/send", "params": {"token": token, "link": spare}}
        with httpx.Client(base_url=worker.info["a2a_url"], trust_env=False, timeout=30) as client:
            for authorization in (f"Bearer {token}", f"Bearer {token}x", f"Basic {token}"):
                headers = {"Authorization": authorization}
                client.post("/", json=body, headers=headers)
                client.post("/", content=b"{" + json.dumps(body).encode(), headers=headers)
                client.post("/sublet/v1/pair", json={"token_id": spare, "secret": spare}, headers=headers)
    finally:
        lender.down()
        worker.down()

    secrets = {
        "token": token.encode(),
        "link": link.split(".")[-2].encode(),
        "spare link": spare.split(".")[-2].encode(),
    }
    for daemon in (lender, worker):
        assert {stat.S_IMODE((daemon.home / name).stat().st_mode) for name in ("state", "run", "state/keys")} == {0o700}
        keys = daemon.home / "state" / "keys"
        seed = (keys / "identity.key").read_bytes()
        secrets |= {f"seed of {daemon.home.name}": seed, "seed in base64": base64.b64encode(seed).rstrip(b"=")}
        secrets |= {"seed in hex": seed.hex().encode()}
        for file in keys.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            if b"PRIVATE KEY" in file.read_bytes():
                secrets[file.name] = file.read_bytes().splitlines()[1]
    looked_at = 0
    for file in [path for daemon in (lender, worker) for path in daemon.home.rglob("*") if path.is_file()]:
        if file.parent.name == "keys":
            continue
        content = file.read_bytes()
        assert b"PRIVATE KEY" not in content, file
        assert [name for name, secret in secrets.items() if secret in content] == [], file
        looked_at += 1
        if file.suffix in (".log", ".db", ".sqlite3"):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert looked_at >= 6
    for daemon in (lender, worker):
        entries = [json.loads(line) for line in (daemon.home / "state" / "daemon.log").read_text().splitlines()]
        assert {entry["logger"] for entry in entries} >= {"asyncssh"}, "it logged all it can"
    assert [word for word in command_lines if any(secret in word.encode() for secret in secrets.values())] == []
    assert not any("PRIVATE KEY" in word for word in command_lines)
