"""Text that several write, by pycrdt: what our own texts are compared with, and what forgers write with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sublet.protocol.ezagent.yjs.update import Value

if TYPE_CHECKING:
    from pycrdt import Doc, Text


@contextmanager
def _no_panic() -> Iterator[None]:
    """Turn a panic of the library, which is no ``Exception``, into one: nothing else may end because of a text."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError("the library of texts has failed") from None


class PycrdtTexts:
    """Opens texts."""

    def open(self, text_root: str, map_root: str) -> _PycrdtText:
        """Return an empty document with a text and a map under these names."""
        return _PycrdtText(text_root, map_root)


class _PycrdtText:
    def __init__(self, text_root: str, map_root: str) -> None:
        self._text_root = text_root
        self._map_root = map_root
        self._doc, self._text = self._open(None)

    @property
    def value(self) -> str:
        return str(self._text)

    def apply(self, update: bytes) -> None:
        with _no_panic():
            self._doc.apply_update(update)

    def edit(self, client: int, start: int, end: int, insert: str, marks: Mapping[str, Value]) -> bytes:
        with _no_panic():
            return self._edit(client, start, end, insert, marks)

    def _edit(self, client: int, start: int, end: int, insert: str, marks: Mapping[str, Value]) -> bytes:
        from pycrdt import Map

        before = self.value
        doc, text = self._open(client)
        doc.apply_update(self._doc.get_update())
        made: list[bytes] = []
        # The difference to a state holds all deletions there ever were; the event holds those of this edit alone.
        subscription = doc.observe(lambda event: made.append(event.update))
        fields = doc.get(self._map_root, type=Map)
        # pycrdt counts in bytes of UTF-8.
        begin = len(before[:start].encode())
        with doc.transaction():
            if end > start:
                del text[begin : begin + len(before[start:end].encode())]
            if insert:
                text.insert(begin, insert)
            for key, value in marks.items():
                fields[key] = value
        doc.unobserve(subscription)
        [update] = made
        self._doc.apply_update(update)
        return update

    def _open(self, client: int | None) -> tuple[Doc[Any], Text]:
        from pycrdt import Doc, Text

        # Without collecting: what is deleted keeps the place of what was written beside it.
        doc: Doc[Any] = Doc(skip_gc=True) if client is None else Doc(client_id=client, skip_gc=True)
        return doc, doc.get(self._text_root, type=Text)
