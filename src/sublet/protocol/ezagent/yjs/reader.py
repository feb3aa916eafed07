"""Reading numbers, texts and values of the lib0 encoding, strictly: one form per value, nothing beyond the input."""

from __future__ import annotations

import math
import struct
from typing import Final

from sublet.protocol.ezagent.errors import malformed
from sublet.protocol.ezagent.yjs.update import MAX_CLIENT, MAX_VALUE_DEPTH, Value

_F32: Final = struct.Struct(">f")
_F64: Final = struct.Struct(">d")
_I64: Final = struct.Struct(">q")
_EXACT: Final = 2**53
_SHORT: Final = 128
"""Numbers below it are one byte; most lengths and many clocks are, and are read without a call."""


class Reader:
    """A place in bytes that somebody else has made. Every method raises ``Refused`` at what no encoder writes."""

    __slots__ = ("_client", "_client_bytes", "data", "place")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0
        self._client = -1
        self._client_bytes = b""

    @property
    def own(self) -> bytes:
        """Return the bytes of the client that was read first; none before that."""
        return self._client_bytes

    @property
    def own_client(self) -> int:
        """Return that client's id."""
        return self._client

    def client(self) -> int:
        """Return a client's id, which is the same in nearly all that follow in one update."""
        start = self.place
        if self._client_bytes and self.data.startswith(self._client_bytes, start):
            self.place = start + len(self._client_bytes)
            return self._client
        client = self.number()
        if not self._client_bytes:
            self._client, self._client_bytes = client, self.data[start : self.place]
        return client

    def item(self) -> tuple[int, int]:
        """Return an item's id."""
        data, own = self.data, self._client_bytes
        if own and data.startswith(own, self.place):
            at = self.place + len(own)
            if at < len(data) and (clock := data[at]) < _SHORT:
                self.place = at + 1
                return self._client, clock
        return self.client(), self.number()

    def byte(self) -> int:
        """Return the next byte."""
        try:
            value = self.data[self.place]
        except IndexError:
            raise malformed("an update is cut off") from None
        self.place += 1
        return value

    def number(self) -> int:
        """Return an unsigned number of variable length, at most 53 bits, in its shortest form."""
        data, place = self.data, self.place
        try:
            piece = data[place]
            place += 1
            if piece < 128:
                self.place = place
                return piece
            value, shift = piece & 127, 7
            while True:
                piece = data[place]
                place += 1
                value |= (piece & 127) << shift
                if piece < 128:
                    break
                shift += 7
                if shift > 49:
                    raise malformed("a number of more than 53 bits")
        except IndexError:
            raise malformed("an update is cut off") from None
        if piece == 0 or value > MAX_CLIENT:
            raise malformed("a number that is not in its shortest form")
        self.place = place
        return value

    def count(self) -> int:
        """Return how many elements follow; each takes a byte at least."""
        value = self.number()
        if value > len(self.data) - self.place:
            raise malformed("more elements than bytes")
        return value

    def block(self) -> bytes:
        """Return bytes that their length precedes."""
        length = self.number()
        start = self.place
        end = start + length
        if end > len(self.data):
            raise malformed("an update is cut off")
        self.place = end
        return self.data[start:end]

    def text(self) -> str:
        """Return the text that comes next: its length in bytes, then UTF-8.

        Raises:
            EzagentError: it ends too early, or is not UTF-8.
        """
        data, start = self.data, self.place + 1
        try:
            if start <= len(data) and (length := data[start - 1]) < _SHORT and start + length <= len(data):
                self.place = start + length
                return data[start : start + length].decode()
            return self.block().decode()
        except UnicodeDecodeError:
            raise malformed("text that is not UTF-8") from None

    def value(self, depth: int = 0) -> Value:
        """Return a plain value; whole numbers become ``int``."""
        kind = self.byte()
        if kind == 119:
            return self.text()
        if kind == 125:
            return self._signed()
        if 122 <= kind <= 124:
            return self._packed({124: _F32, 123: _F64, 122: _I64}[kind])
        if kind in (120, 121):
            return kind == 120
        if kind in (126, 127):
            return None
        if kind == 116:
            return self.block()
        if depth >= MAX_VALUE_DEPTH:
            raise malformed("a value is nested too deep")
        if kind == 117:
            return [self.value(depth + 1) for _ in range(self.count())]
        if kind == 118:
            return self._object(depth + 1)
        raise malformed(f"a value of kind {kind}")

    def _object(self, depth: int) -> Value:
        count = self.count()
        pairs: dict[str, Value] = {}
        for _ in range(count):
            key = self.text()
            pairs[key] = self.value(depth)
        if len(pairs) != count:
            raise malformed("an object that names a key twice")
        return pairs

    def _packed(self, form: struct.Struct) -> Value:
        try:
            (value,) = form.unpack_from(self.data, self.place)
        except struct.error:
            raise malformed("an update is cut off") from None
        self.place += form.size
        if isinstance(value, float):
            if not math.isfinite(value):
                raise malformed("a number that is not finite")
            if value.is_integer() and abs(value) < _EXACT:
                return int(value)
            return value
        return int(value)

    def _signed(self) -> int:
        piece = self.byte()
        negative, value, shift = piece & 64, piece & 63, 6
        while piece & 128:
            piece = self.byte()
            value |= (piece & 127) << shift
            shift += 7
            if shift > 55:
                raise malformed("a number of more than 53 bits")
        return -value if negative else value
