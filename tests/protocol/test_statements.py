"""What a person signs is for one daemon, one decision and one time; her key opens by its passphrase alone."""

from __future__ import annotations

import pytest
from nacl.signing import SigningKey

from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.sealed_key import SealedKey, seal, unseal
from sublet.protocol.statement_signing import sign_statement, verify_statement
from sublet.protocol.statements import Statement

KEY = SigningKey.generate()
PUBLIC = bytes(KEY.verify_key)
NOW = 1_800_000_000


class Seen:
    """Replay memory."""

    def __init__(self) -> None:
        self._nonces: set[str] = set()

    def first_seen(self, nonce: str, at: int) -> bool:
        new = nonce not in self._nonces
        self._nonces.add(nonce)
        return new


def statement(**changes: object) -> Statement:
    whole = Statement(daemon="node-a", decision="approve", subject="apr_1", agent="coder", tool="shell.exec", at=NOW)
    return whole.model_copy(update=changes)


def test_a_signature_counts_once() -> None:
    signed, seen = sign_statement(statement(), KEY), Seen()
    verify_statement(signed, signer=PUBLIC, daemon="node-a", now=NOW, nonces=seen)
    with pytest.raises(SubletError, match="used before"):
        verify_statement(signed, signer=PUBLIC, daemon="node-a", now=NOW, nonces=seen)


@pytest.mark.parametrize("name", [name for name in Statement.model_fields if name not in ("when", "any_arguments")])
def test_every_field_is_signed(name: str) -> None:
    signed = sign_statement(statement(), KEY)
    value = getattr(signed.statement, name)
    changed = signed.statement.model_copy(update={name: value + 1 if isinstance(value, int) else f"{value}x"})
    with pytest.raises(SubletError, match="not signed by the approver") as caught:
        verify_statement(
            signed.model_copy(update={"statement": changed}), signer=PUBLIC, daemon="node-a", now=NOW, nonces=Seen()
        )
    assert caught.value.code is LocalCode.APPROVAL_INVALID


@pytest.mark.parametrize(
    ("daemon", "now", "why"),
    [("node-b", NOW, "another daemon"), ("node-a", NOW + 301, "too long ago"), ("node-a", NOW - 301, "too long ago")],
)
def test_it_is_for_this_daemon_and_for_now(daemon: str, now: int, why: str) -> None:
    with pytest.raises(SubletError, match=why):
        verify_statement(sign_statement(statement(), KEY), signer=PUBLIC, daemon=daemon, now=now, nonces=Seen())


def test_a_sealed_key_opens_by_its_passphrase_alone() -> None:
    sealed = seal(KEY, "correct horse battery")
    assert bytes(KEY) not in sealed.encode()
    assert SealedKey.model_validate_json(sealed).memory_bytes >= 256 << 20
    assert unseal(sealed, "correct horse battery", PUBLIC) == KEY
    with pytest.raises(SubletError) as caught:
        unseal(sealed, "correct horse batterx", PUBLIC)
    assert caught.value.code is LocalCode.PASSPHRASE_WRONG
    with pytest.raises(SubletError, match="damaged"):
        unseal(sealed, "correct horse battery", bytes(SigningKey.generate().verify_key))


@pytest.mark.parametrize("passphrase", ["", "short", "x" * 1_025])
def test_a_passphrase_has_bounds(passphrase: str) -> None:
    with pytest.raises(SubletError, match="passphrase"):
        seal(KEY, passphrase)


@pytest.mark.parametrize("sealed", ["", "{}", '{"kdf": "none"}', '{"operations": 99, "memory_bytes": 1099511627776}'])
def test_a_damaged_key_is_told_as_such_and_costs_nothing(sealed: str) -> None:
    with pytest.raises(SubletError, match="damaged"):
        unseal(sealed, "whatever it is", PUBLIC)
