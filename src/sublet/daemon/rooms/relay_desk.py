"""Asks a relay's registration port, over TLS with the relay's own authority or a public one (ezagent 7.3, 7.4)."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote

from sublet.protocol.bounded_json import parse_json
from sublet.protocol.canonical import JsonValue, canonical_json
from sublet.protocol.encoding import unb64
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.relay.errors import RelayRefusal
from sublet.protocol.relay.name_record import NameRecord, parse_name_record
from sublet.protocol.relay.requests import KEY_BYTES, RequestAction
from sublet.protocol.relay.slot_keys import slot_number
from sublet.protocol.text import clean_line

MAX_ANSWER_BYTES: Final = 64 << 10
ASK_SECONDS: Final = 10.0
MAX_WORDS: Final = 200
_CODES: Final = {
    "ENTITY_EXISTS": LocalCode.CONFLICT,
    "CONFLICT": LocalCode.CONFLICT,
    "ENTITY_NOT_FOUND": LocalCode.NOT_FOUND,
    "INVALID_ENTITY_ID": LocalCode.INVALID_ARGUMENT,
    "PERMISSION_DENIED": LocalCode.POLICY_DENIED,
    "REVOKED": LocalCode.POLICY_DENIED,
}


class RelayRefused(SubletError):
    """The relay has answered, with a refusal.

    Args:
        said: its code, as it came.
        message: in its words, cleaned.
    """

    def __init__(self, said: str, message: str) -> None:
        super().__init__(
            _CODES.get(said, LocalCode.UNAVAILABLE),
            f"the relay refuses: {message} ({said})",
            "Choose another name, or ask whoever runs the relay.",
            from_peer=True,
        )
        self.said = said


@dataclass(frozen=True, slots=True)
class Admission:
    """What a relay has given us: our name, signed, and a certificate for a slot.

    Args:
        record: of our name.
        relay_key: the raw public key by which its records are known.
        slot: ours.
        certificate: in PEM.
        expires_at: when that ends, Unix seconds.
    """

    record: NameRecord
    relay_key: bytes
    slot: str
    certificate: str
    expires_at: int


class AsksRelay(Protocol):
    """The registration port of one relay, as a daemon needs it."""

    async def domain(self) -> str:
        """Return the relay's domain.

        Raises:
            SubletError: ``UNAVAILABLE``.
        """

    async def admit(self, action: RequestAction, request: bytes) -> Admission:
        """Send a signed request that asks for a certificate, and return what the relay gives.

        Raises:
            RelayRefused: it does not.
            SubletError: ``UNAVAILABLE``: it can't be asked, or its answer is none.
        """

    async def record(self, name: str) -> NameRecord:
        """Return what the relay says of a name.

        Raises:
            RelayRefused: ``NOT_FOUND``: nobody has it.
            SubletError: ``UNAVAILABLE``.
        """


class RelayDesk:
    """``AsksRelay`` by HTTPS.

    Args:
        url: of the registration port.
        authority: PEM file by which the relay is known; None for the system's.
    """

    def __init__(self, url: str, authority: Path | None) -> None:
        self._url = url
        self._authority = authority

    async def domain(self) -> str:
        """``AsksRelay.domain``."""
        return _text(await self._ask("GET", "/v1/relay"), "domain")

    async def admit(self, action: RequestAction, request: bytes) -> Admission:
        """``AsksRelay.admit``."""
        body = await self._ask("POST", f"/v1/{action}", request)
        key = unb64(_text(body, "relay_key"), KEY_BYTES)
        expires, slot = body.get("expires_at"), _text(body, "slot")
        if key is None or not isinstance(expires, int) or isinstance(expires, bool) or slot_number(slot) is None:
            raise _odd()
        return Admission(_record(body.get("record"), key), key, slot, _text(body, "certificate"), expires)

    async def record(self, name: str) -> NameRecord:
        """``AsksRelay.record``."""
        key = unb64(_text(await self._ask("GET", "/v1/relay"), "relay_key"), KEY_BYTES)
        if key is None:
            raise _odd()
        return _record(await self._ask("GET", f"/v1/names/{quote(name, safe='')}"), key)

    async def _ask(self, method: str, path: str, body: bytes | None = None) -> dict[str, JsonValue]:
        import httpx

        try:
            context = ssl.create_default_context(cafile=str(self._authority) if self._authority is not None else None)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            async with (
                httpx.AsyncClient(
                    base_url=self._url, verify=context, timeout=ASK_SECONDS, trust_env=False, follow_redirects=False
                ) as client,
                client.stream(method, path, content=body) as answer,
            ):
                raw = b""
                async for piece in answer.aiter_raw():
                    raw += piece
                    if len(raw) > MAX_ANSWER_BYTES:
                        raise _odd()
        except (httpx.HTTPError, OSError) as error:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"the relay's registration port {self._url} can't be asked: {clean_line(str(error), MAX_WORDS)}",
                "See that the relay runs, and that --relay-ca is the file of its authority.",
            ) from None
        return parse_answer(raw)


def parse_answer(raw: bytes) -> dict[str, JsonValue]:
    """Return what a registration port has answered.

    Raises:
        RelayRefused: that is a refusal.
        SubletError: ``UNAVAILABLE``: it is no answer of a relay.
    """
    try:
        body = parse_json(raw, max_bytes=MAX_ANSWER_BYTES)
    except ValueError:
        raise _odd() from None
    if not isinstance(body, dict):
        raise _odd()
    error = body.get("error")
    if isinstance(error, dict):
        said, message = error.get("code"), error.get("message")
        if not isinstance(said, str) or not isinstance(message, str):
            raise _odd()
        raise RelayRefused(clean_line(said, MAX_WORDS), clean_line(message, MAX_WORDS))
    return body


def _record(value: JsonValue, key: bytes) -> NameRecord:
    try:
        return parse_name_record(canonical_json(value), key)
    except (RelayRefusal, ValueError):
        raise _odd() from None


def _text(body: dict[str, JsonValue], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or len(value) > MAX_ANSWER_BYTES:
        raise _odd()
    return value


def _odd() -> SubletError:
    return SubletError(
        LocalCode.UNAVAILABLE, "the relay answers as no relay does", "See that the address is a Sublet relay's."
    )
