"""What a hostile lender makes the worker's machine keep through a mount."""

from __future__ import annotations

import subprocess
from pathlib import Path

import anyio
import asyncssh
import pytest

from attacks.kit.raw_lender import EndlessDirectory, raw_lender
from sublet.workspace.mount import mount as mounting
from sublet.workspace.mount.mounts import Mounts
from sublet.workspace.mount.table import mounted_below
from sublet.workspace.ssh.connection import connect

pytestmark = pytest.mark.anyio
ENOUGH = 1_500_000
"""Names that take some 600 MB of sshfs where nothing bounds it."""


async def test_a_directory_whose_names_never_end_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounting, "MAX_SSHFS_BYTES", 160 << 20)
    key, lying = asyncssh.generate_private_key("ssh-ed25519"), EndlessDirectory()
    mounts = Mounts(tmp_path / "mounts")
    async with raw_lender(lying) as target, await connect(target, key, 5) as connection:
        mount = await mounts.attach(mounts.reserve("dlg_1"), connection)
        looks = subprocess.Popen(["ls", "-U", mount.path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not mount.lost.is_set() and lying.told < ENOUGH:
                await anyio.sleep(0.01)
            assert mount.lost.is_set(), f"{lying.told} names were kept"
            assert "sshfs" in mount.why_lost
        finally:
            await mount.detach(flush=False)
            looks.kill()
            looks.wait()
    assert mounted_below(mounts.root) == []
