"""Lines of a byte stream: bounded, and at a cost that does not depend on how somebody cuts or fills them."""

from __future__ import annotations


class LineTooLong(ValueError):
    """A line has more bytes than the reader takes."""


def squeezed(data: bytes) -> bytes:
    """Return ``data`` with runs of line ends joined into one, in a few passes of C."""
    while b"\n\n" in data:
        data = data.replace(b"\n\n", b"\n")
    return data


class LineCutter:
    """Cuts a stream of bytes into lines.

    Args:
        max_bytes: most bytes of one line.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that ``data`` completes, without their ends, and without those that are blank.

        Raises:
            LineTooLong: one has more than ``max_bytes``.
        """
        first, *others = squeezed(data).split(b"\n")
        # Added to in place: somebody may send a line byte by byte.
        self._rest += first
        if not others:
            if len(self._rest) > self._max:
                raise LineTooLong(f"a line has at most {self._max} bytes")
            return []
        lines = [bytes(self._rest), *others[:-1]]
        self._rest = bytearray(others[-1])
        if max(map(len, (*lines, self._rest))) > self._max:
            raise LineTooLong(f"a line has at most {self._max} bytes")
        return [line for line in lines if line and not line.isspace()]

    def end(self) -> list[bytes]:
        """Return the last line, which has no end, unless it is blank."""
        return self.feed(b"\n")
