"""Fields of JSON objects that came from elsewhere, each of one type or refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sublet.protocol.bounded_json import parse_json
from sublet.protocol.canonical import JsonValue
from sublet.protocol.encoding import unb64
from sublet.protocol.relay.errors import invalid

MAX_TEXT = 512
_FEW = 4_096


def parse_object(raw: bytes, most: int, names: frozenset[str]) -> dict[str, JsonValue]:
    """Return the JSON object in ``raw``, which has these members and no others.

    Raises:
        RelayRefusal: ``VALIDATION_ERROR``.
    """
    try:
        body = parse_json(raw, max_bytes=most, depth=8, values=4 * _FEW)
    except ValueError as error:
        raise invalid(str(error)) from None
    if not isinstance(body, dict) or body.keys() != names:
        raise invalid(f"it is no object with {', '.join(sorted(names))} alone")
    return body


def text_of(body: Mapping[str, JsonValue], name: str, most: int = MAX_TEXT) -> str:
    """Return a text of at most ``most`` printable characters.

    Raises:
        RelayRefusal: ``VALIDATION_ERROR``.
    """
    value = body.get(name)
    if not isinstance(value, str) or len(value) > most or not value.isprintable():
        raise invalid(f"{name} is no text")
    return value


def number_of(body: Mapping[str, JsonValue], name: str) -> int:
    """Return a whole number from 0 to 2**53.

    Raises:
        RelayRefusal: ``VALIDATION_ERROR``.
    """
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise invalid(f"{name} is no number")
    return value


def bytes_of(body: Mapping[str, JsonValue], name: str, size: int) -> bytes:
    """Return so many bytes, which travel in base64.

    Raises:
        RelayRefusal: ``VALIDATION_ERROR``.
    """
    raw = unb64(text_of(body, name), size)
    if raw is None:
        raise invalid(f"{name} is no base64 of {size} bytes")
    return raw


def texts_of(body: Mapping[str, JsonValue], name: str, fits: Callable[[str], object], most: int) -> tuple[str, ...]:
    """Return a list of at most ``most`` different texts, each of which fits, in their order.

    Raises:
        RelayRefusal: ``VALIDATION_ERROR``.
    """
    value = body.get(name)
    if not isinstance(value, list) or len(value) > most:
        raise invalid(f"{name} is no list of at most {most}")
    found = [one for one in value if isinstance(one, str) and len(one) <= MAX_TEXT and fits(one)]
    if len(found) != len(value) or len(set(found)) != len(found):
        raise invalid(f"{name} holds something else, or one thing twice")
    return tuple(found)
