from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from sublet.daemon.peering.identity import load_identity, load_tls, tls_fingerprint
from sublet.daemon.storage.private_files import make_private, read_private
from sublet.protocol import ids
from sublet.protocol.errors import LocalCode, SubletError


def test_the_identity_is_made_once_and_kept(tmp_path: Path) -> None:
    first, second = load_identity(tmp_path / "keys"), load_identity(tmp_path / "keys")
    assert bytes(first.key) == bytes(second.key)
    assert first.ssh_host_key.public_data == second.ssh_host_key.public_data
    assert first.node_id == ids.node_id(first.public_key)
    assert first.fingerprint == ids.fingerprint(first.public_key)
    for file in (tmp_path / "keys").iterdir():
        assert file.stat().st_mode & 0o777 == 0o600
    assert len((tmp_path / "keys" / "identity.key").read_bytes()) == 32
    assert load_identity(tmp_path / "other").node_id != first.node_id


@pytest.mark.parametrize("name", ["identity.key", "ssh_host_ed25519_key"])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, name: str) -> None:
    load_identity(tmp_path)
    os.chmod(tmp_path / name, 0o640)
    with pytest.raises(SubletError, match="open to others") as refused:
        load_identity(tmp_path)
    assert refused.value.code is LocalCode.UNAVAILABLE


@pytest.mark.parametrize("name", ["identity.key", "ssh_host_ed25519_key", "tls.key", "tls.pem"])
@pytest.mark.parametrize("content", [b"", b"x" * 33, b"x" * 70_000])
def test_a_damaged_key_is_never_replaced(tmp_path: Path, name: str, content: bytes) -> None:
    load_identity(tmp_path)
    load_tls(tmp_path, ["localhost"])
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SubletError):
        load_tls(tmp_path, ["localhost"]) if name.startswith("tls") else load_identity(tmp_path)
    assert (tmp_path / name).read_bytes() == content


def test_links_and_fifos_are_no_keys(tmp_path: Path) -> None:
    make_private(tmp_path / "real", b"s")
    os.symlink(tmp_path / "real", tmp_path / "link")
    os.mkfifo(tmp_path / "fifo", 0o600)
    for name in ("link", "fifo"):
        with pytest.raises(SubletError):
            read_private(tmp_path / name)


def test_the_first_maker_wins(tmp_path: Path) -> None:
    assert make_private(tmp_path / "k", b"first") == b"first"
    assert make_private(tmp_path / "k", b"second") == b"first"
    assert [p.name for p in tmp_path.iterdir()] == ["k"]


def test_the_certificate_names_the_host_and_stays(tmp_path: Path) -> None:
    files = load_tls(tmp_path, ["192.0.2.7", "box.example", "192.0.2.7"])
    certificate = x509.load_pem_x509_certificate(files.certificate_pem.encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.7"]
    assert names.get_values_for_type(x509.DNSName) == ["box.example"]
    assert load_tls(tmp_path, ["198.51.100.1"]).fingerprint == files.fingerprint
    assert files.fingerprint == ids.fingerprint(ssl.PEM_cert_to_DER_cert(files.certificate_pem))
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.certificate, files.key)


def test_a_fingerprint_is_of_exactly_one_certificate(tmp_path: Path) -> None:
    pem = load_tls(tmp_path, ["localhost"]).certificate_pem
    assert ids.FINGERPRINT.match(tls_fingerprint(pem))
    for wrong in ("", "nonsense", pem + pem):
        with pytest.raises(ValueError, match=r"(?i)pem|certificate"):
            tls_fingerprint(wrong)


def test_a_certificate_of_another_key_is_refused(tmp_path: Path) -> None:
    load_tls(tmp_path, ["localhost"])
    (tmp_path / "tls.key").unlink()
    with pytest.raises(SubletError, match="damaged"):
        load_tls(tmp_path, ["localhost"])
