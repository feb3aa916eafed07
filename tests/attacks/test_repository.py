"""A hostile lender, executor or repository against everything that reads git's data."""

from __future__ import annotations

import os
from pathlib import Path

import asyncssh
import pytest

from attacks.kit.repository import META, bundle_of_files, file, hostile_lender, link, stream_of
from sublet.protocol.errors import SubletError
from sublet.workspace.archive.carrier import ArchiveCarrier
from sublet.workspace.archive.tar_format import Entry, TarLimits
from sublet.workspace.bundles.carrier import GitCarrier
from sublet.workspace.ssh.connection import connect

pytestmark = pytest.mark.anyio
KEY = asyncssh.generate_private_key("ssh-ed25519")
LIMITS = TarLimits(1_000, 1 << 24, 1 << 24)


async def attach(carrier: ArchiveCarrier, stream: bytes, lease: str) -> str:
    """Take a hostile lender's view, and return why it was refused; empty where it was not."""
    async with hostile_lender(stream, KEY) as target, await connect(target, KEY, 5) as connection:
        try:
            view = await carrier.attach(carrier.reserve(lease), connection)
        except SubletError as error:
            return error.message
        await view.detach(flush=False)
    return ""


def git_carrier(tmp_path: Path) -> GitCarrier:
    return GitCarrier(tmp_path / "state" / "clones", lambda: LIMITS)


async def test_a_bundle_without_a_name_makes_no_repository_of_the_state(tmp_path: Path) -> None:
    owned = tmp_path / "owned"
    evil = bundle_of_files(
        {
            b"commondir": b"evil\n",
            b"evil/HEAD": b"ref: refs/heads/sublet\n",
            b"evil/config": f'[core]\n\talternateRefsCommand = "touch {owned};:"\n'.encode(),
            b"evil/objects/info/alternates": str(tmp_path / "state" / "clones" / "objects").encode() + b"\n",
            b"evil/refs/heads/x": b"",
            b"objects/info/alternates": str(tmp_path / "state" / "clones" / ".git" / "objects").encode() + b"\n",
        }
    )
    carrier = git_carrier(tmp_path)
    for lease in ("dlg_1", "dlg_2"):
        assert "a name is empty" in await attach(carrier, stream_of([META, file(b"...bundle", evil)]), lease)
    assert not owned.exists()
    assert os.listdir(tmp_path / "state" / "clones") == []


@pytest.mark.parametrize("kind", ["bundle first", "link first"])
async def test_a_link_in_the_place_of_a_directory_leads_nowhere(tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    bundle = file(b"workspace.bundle", bundle_of_files({b"authorized_keys2": b"ssh-ed25519 AAAA mallory\n"}))
    planted = link(b"workspace", os.fsencode(victim))
    entries = [bundle, planted] if kind == "bundle first" else [planted, bundle]
    assert "beside the bundles" in await attach(git_carrier(tmp_path), stream_of([META, *entries]), "dlg_1")
    assert os.listdir(victim) == []


@pytest.mark.parametrize(
    "name", [b"..bundle", b".git.bundle", b"-x.bundle", b"meta.bundle", b".bundle", b"a\nb.bundle", b"x.bundle.bundle"]
)
async def test_a_directory_has_a_plain_name(tmp_path: Path, name: bytes) -> None:
    stream = stream_of([META, file(name, bundle_of_files({b"a": b"b"}))])
    assert await attach(git_carrier(tmp_path), stream, "dlg_1")
    assert os.listdir(tmp_path / "state" / "clones") == []


async def test_more_directories_than_may_be_lent_are_refused(tmp_path: Path) -> None:
    bundle = bundle_of_files({b"a": b"b"})
    stream = stream_of([META, *(file(b"d%d.bundle" % number, bundle) for number in range(17))])
    assert "more than 16 directories" in await attach(git_carrier(tmp_path), stream, "dlg_1")


@pytest.mark.parametrize("name", [b"workspace", b"meta"])
async def test_a_view_of_an_archive_holds_directories_alone(tmp_path: Path, name: bytes) -> None:
    carrier = ArchiveCarrier(tmp_path / "work", lambda: LIMITS)
    stream = stream_of([link(name, os.fsencode(tmp_path))])
    assert "no directory" in await attach(carrier, stream, "dlg_1")
    assert os.listdir(tmp_path / "work") == []


async def test_a_link_in_meta_is_refused(tmp_path: Path) -> None:
    stream = stream_of([META, (Entry((b"meta", b"x"), "symlink", target=b"/etc/passwd"), b"")])
    assert "a link in /meta" in await attach(git_carrier(tmp_path), stream, "dlg_1")
