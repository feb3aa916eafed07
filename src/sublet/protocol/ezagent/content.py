"""Immutable contents and refs: their canonical bytes, ids and signatures (ezagent 4.3, 4.4).

Canonical JSON here orders keys by code point and composes strings (NFC), which is not the form of AWCP's messages.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import unicodedata
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from sublet.protocol.bounded_json import BadJson, parse_json
from sublet.protocol.canonical import MAX_DEPTH, JsonValue, narrow
from sublet.protocol.ezagent.errors import Refusal, Refused, malformed
from sublet.protocol.ezagent.ids import ContentId, EntityId, checked_entity_id, is_content_hash
from sublet.protocol.ezagent.ref_shape import fits, moment_ms
from sublet.protocol.ezagent.yjs.update import ANY, Update

Object: TypeAlias = "dict[str, JsonValue]"

MAX_BODY_BYTES: Final = 64 << 10
MAX_CONTENT_BYTES: Final = 128 << 10
MAX_MEDIA_REFS: Final = 32
NAMING_KINDS: Final = ("config", "draft", "ext", "index")
"""Kinds of documents by which contents stand that they name; others name none, and a peer may begin many of them."""
MAX_MEDIA_REF_CHARS: Final = 128
FORMATS: Final = ("text/plain", "text/markdown", "text/html")
IMMUTABLE: Final = "immutable"

SIGNED_EXTENSIONS: Final = ("ext.channels", "ext.command", "ext.reply_to", "ext.thread")
"""Fields of extensions that a ref's signature covers; all others change later, by others than the author."""
_CORE: Final = ("ref_id", "author", "content_type", "content_id", "created_at")
_REF_DOMAIN: Final = b"sublet/ref/1\n"
_SIGNATURE: Final = "ed25519:"
_to_text: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


def canonical(value: JsonValue) -> bytes:
    """Return the canonical bytes of ``value``: keys by code point, strings in NFC, no spaces, UTF-8.

    Raises:
        ValueError: a fraction, an integer beyond 2**53, a lone surrogate, two keys that NFC makes one, or deep nesting.
    """
    if _is_plain(value):
        text = _to_text(value)
        if text.isascii():  # whatever NFC would make of it, it is that already
            return text.encode()
    return _to_text(_ordered(value, 0)).encode()


def content_id(content: Mapping[str, JsonValue]) -> ContentId:
    """Return the id of immutable content: the hash of all its fields except its id and its signature."""
    return "sha256:" + hashlib.sha256(canonical(_bare(content))).hexdigest()


def sign_content(content: Mapping[str, JsonValue], key: SigningKey) -> Object:
    """Return immutable content with its id and its author's signature."""
    raw = canonical(_bare(content))
    named: Object = {"content_id": "sha256:" + hashlib.sha256(raw).hexdigest(), **content}
    named["signature"] = _signature(key, raw)
    return named


def parse_content(raw: bytes) -> Object:
    """Return immutable content as it travels, with an id that fits it; its signature is not yet verified.

    Raises:
        Refused: ``OVERSIZED``; ``MALFORMED``: it is not such content, or its id is that of another.
    """
    if len(raw) > MAX_CONTENT_BYTES:
        raise Refused(Refusal.OVERSIZED, f"a content of {len(raw)} bytes")
    try:
        content: Any = parse_json(raw)
        if not _is_plain(content):
            content = narrow(content)
        if not isinstance(content, dict) or content.get("content_id") != content_id(content):
            raise malformed("a content's id does not fit it")
    except (ValueError, RecursionError) as error:
        raise error if isinstance(error, Refused) else malformed("a content is no canonical JSON") from None
    body, form, media = content.get("body"), content.get("format"), content.get("media_refs")
    author, created = content.get("author"), content.get("created_at")
    if not (
        content.get("type") == IMMUTABLE
        and isinstance(body, str)
        and len(body.encode()) <= MAX_BODY_BYTES
        and form in FORMATS
        and moment_ms(created) is not None
        and isinstance(author, str)
        and isinstance(media, list)
        and len(media) <= MAX_MEDIA_REFS
        and all(isinstance(one, str) and len(one) <= MAX_MEDIA_REF_CHARS for one in media)
        and fits("signature", content.get("signature"))
    ):
        raise malformed("a content has another shape")
    checked_entity_id(author)
    return content


def author_of(raw: bytes) -> EntityId | None:
    """Return whom a content names as its author, without checking anything else of it; None for nobody."""
    try:
        content = parse_json(raw)
    except BadJson:
        return None
    author = content.get("author") if isinstance(content, dict) else None
    return author if isinstance(author, str) else None


def named_contents(update: Update) -> list[ContentId]:
    """Return the immutable contents that an update names."""
    found: dict[ContentId, None] = {}
    for item in update.items:
        if item.key == "content_id" and item.kind == ANY and isinstance(item.value, list):
            value = item.value[-1]
            if isinstance(value, str) and is_content_hash(value):
                found[value] = None
    return list(found)


def verify_content(content: Mapping[str, JsonValue], keys: tuple[VerifyKey, ...]) -> None:
    """Check that the author has signed the content.

    Raises:
        Refused: ``BAD_SIGNATURE``.
    """
    verify_signature(content.get("signature"), canonical(_bare(content)), keys)


def sign_ref(room_id: str, ref: Mapping[str, JsonValue], key: SigningKey) -> str:
    """Return the signature of a ref's core fields and of those extensions that its author signs, without ``status``.

    It is for readers to whom a ref comes without its envelope. Here nobody verifies it: a ref comes in an envelope,
    which is verified, and whose signer has to be the author.
    """
    return _signature(key, ref_bytes(room_id, ref))


def ref_bytes(room_id: str, ref: Mapping[str, JsonValue]) -> bytes:
    """Return what the signature of a ref covers.

    Raises:
        ValueError: it has no canonical form.
    """
    covered: Object = {"room_id": room_id}
    covered |= {name: ref.get(name) for name in _CORE}
    covered |= {name: ref[name] for name in SIGNED_EXTENSIONS if ref.get(name) is not None}
    return _REF_DOMAIN + canonical(covered)


def content_object(author: EntityId, body: str, form: str, created_at: str, media_refs: list[str]) -> Object:
    """Return immutable content before it is signed.

    Args:
        author: entity that writes it.
        body: text, at most ``MAX_BODY_BYTES`` in UTF-8.
        form: one of ``FORMATS``.
        created_at: RFC 3339 in UTC with milliseconds; for display only.
        media_refs: hashes of attachments.
    """
    return {
        "type": IMMUTABLE,
        "author": author,
        "body": _composed(body),
        "format": form,
        "media_refs": cast("list[JsonValue]", list(media_refs)),
        "created_at": created_at,
    }


def _bare(content: Mapping[str, JsonValue]) -> Object:
    return {key: value for key, value in content.items() if key not in ("content_id", "signature")}


def _signature(key: SigningKey, raw: bytes) -> str:
    return _SIGNATURE + base64.urlsafe_b64encode(key.sign(raw).signature).rstrip(b"=").decode()


def verify_signature(signature: JsonValue, raw: bytes, keys: tuple[VerifyKey, ...]) -> None:
    """Check the signature of a content or of a ref over ``raw``.

    Raises:
        Refused: ``BAD_SIGNATURE``.
    """
    value = unb64url(signature.removeprefix(_SIGNATURE), 64) if isinstance(signature, str) else None
    if value is not None:
        for key in keys:
            try:
                key.verify(raw, value)
            except (BadSignatureError, ValueError):
                continue
            return
    raise Refused(Refusal.BAD_SIGNATURE, "the author has not signed this")


def unb64url(text: str, size: int) -> bytes | None:
    """Return the bytes that ``text`` stands for if it is unpadded canonical base64url of ``size`` bytes, else None."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == size and base64.urlsafe_b64encode(raw).rstrip(b"=").decode() == text else None


def _is_plain(value: JsonValue) -> bool:
    """Tell quickly whether it is an object of strings and lists of strings, as nearly everything that is signed is."""
    if not isinstance(value, dict):
        return False
    for item in value.values():
        if isinstance(item, list):
            if not all(isinstance(one, str) for one in item):
                return False
        elif not isinstance(item, str):
            return False
    return True


def _composed(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _ordered(value: JsonValue, depth: int) -> JsonValue:
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, str):
        return _composed(value)
    if isinstance(value, dict):
        composed = {
            _composed(key): _composed(item) if isinstance(item, str) else _ordered(item, depth + 1)
            for key, item in value.items()
        }
        if len(composed) != len(value):
            raise ValueError("two keys that are one")
        return composed
    if isinstance(value, list):
        return [_ordered(item, depth + 1) for item in value]
    if isinstance(value, float):
        raise ValueError("a fraction has no canonical form here")
    if isinstance(value, int) and abs(value) > 2**53 - 1:
        raise ValueError("integer beyond 2**53")
    return value
