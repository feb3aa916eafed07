"""States an operation of the daemon as one typed value.

A module of ``daemon.api`` declares one ``Operation``, ``Streaming`` or ``Feed`` for each operation of its area. The
server's routes, the calls of clients, the page's subset, the question to policy and the API's documents are made from
that value, so that none of them can say something else. A caller and the method that serves it share the two models,
and mypy checks both ends.

Rules: this module imports no server and no model of an area. A field of the path is always a field of the request, and
never of the query or the body as well.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from sublet.daemon.api.base import Request
from sublet.policy.decision import Action
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.patterns import Pattern
from sublet.protocol.text import clean_line

Method = Literal["GET", "POST", "PATCH", "DELETE"]
RequestT = TypeVar("RequestT", bound=Request)
AnswerT = TypeVar("AnswerT")
EventT = TypeVar("EventT", bound=BaseModel)
NumberedT = TypeVar("NumberedT", bound="Numbered")

IN_THE_QUERY: Final = frozenset({"GET", "DELETE"})
"""Methods whose arguments are in the query; those of the others are a JSON object in the body."""
MAX_BODY_BYTES: Final = 2 << 20
MAX_SHOWN_CHARS: Final = 80
ANYTHING: Final = "*"
"""The resource that policy is asked about where an operation is not about one thing, or its field is not given."""

_SEGMENT = Pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


class Numbered(Protocol):
    """An event of a ``Feed``: ``seq`` grows from one to the next, and ``kind`` is a plain name."""

    @property
    def seq(self) -> int: ...

    @property
    def kind(self) -> str: ...


class Nothing(Request):
    """The request of an operation that takes no arguments."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Says what a field of the path looks like, as metadata of its type: ``Annotated[str, Segment(…)]``.

    Args:
        fits: tells whether a text is one. Nothing that fits may hold a slash, or be one or two dots.
        what: the noun for people, such as ``id of a room``.
        hint: what shows the right ones.
    """

    fits: Callable[[str], object]
    what: str
    hint: str

    def check(self, text: str) -> str:
        """Return ``text``.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` where it would mean something else in a path.
        """
        if self.fits(text):
            return text
        shown = clean_line(text, MAX_SHOWN_CHARS)
        raise SubletError(LocalCode.INVALID_ARGUMENT, f"{shown!r} is no {self.what}", self.hint)


ANY_SEGMENT: Final = Segment(_SEGMENT.match, "id and no name", "See `sublet ls`.")
"""Fields of a path that say nothing else are ids and names like this."""


@dataclass(frozen=True, slots=True)
class Asks:
    """What policy is asked before the method runs.

    Args:
        action: what the caller wants to do.
        resource: the name of what it is done to, with each ``{field}`` of the request filled in; a field that is None
            or empty stands for everything.
        attributes: fields and properties of the request that rules may look at, under their own names.
    """

    action: Action
    resource: str = ANYTHING
    attributes: tuple[str, ...] = ()

    def resource_of(self, request: Request) -> str:
        """Return the name of what ``request`` is about."""
        named = {name: getattr(request, name) or ANYTHING for name in _fields(self.resource)}
        return self.resource.format(**named)

    def attributes_of(self, request: Request) -> dict[str, str | int | bool]:
        """Return what rules may look at."""
        return {name: getattr(request, name) for name in self.attributes}


@dataclass(frozen=True, slots=True)
class AsksInside:
    """Says that the method itself asks policy, and why it can't be asked before.

    The method fails where it comes to its end and has asked nothing.

    Args:
        reason: why, as a clause that follows "because".
        actions: everything that it asks for.
    """

    reason: str
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Hides:
    """Says what an answer lists, so that what a rule hides from the caller is left out of it.

    Args:
        action: what a caller would ask policy for about one of the things that are listed.
        key: attribute of each that names it to policy.
        field: field of the answer that holds the list; the answer itself where there is none.
    """

    action: Action
    key: str
    field: str = ""


@dataclass(frozen=True, eq=False)
class Stated(Generic[RequestT]):
    """What an operation says of itself, whatever it answers with.

    Args:
        name: the name in the documents and in errors, such as ``reactions.add``.
        method: HTTP method.
        path: absolute path on the control socket. Each ``{field}`` is a field of the request.
        request: the model of all arguments.
        asks: what policy is asked.
        summary: one sentence that says what it does.
        max_bytes: how large the body of a request may be.
    """

    name: str
    method: Method
    path: str
    request: type[RequestT]
    _: KW_ONLY
    asks: Asks | AsksInside
    summary: str
    max_bytes: int = MAX_BODY_BYTES

    def __post_init__(self) -> None:
        wanted = set(self.path_fields)
        if isinstance(self.asks, Asks):
            wanted |= {*_fields(self.asks.resource), *self.asks.attributes}
        if unknown := {name for name in wanted if not self._has(name)}:
            raise TypeError(f"{self.name}: {self.request.__name__} has no {', '.join(sorted(unknown))}")

    @property
    def path_fields(self) -> tuple[str, ...]:
        """The fields of the request that are in the path, in its order."""
        return _fields(self.path)

    def path_of(self, request: RequestT) -> str:
        """Return the path of ``request``.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` where a field would mean something else in a path.
        """
        named = {name: self._segment(name).check(getattr(request, name)) for name in self.path_fields}
        return self.path.format(**{name: quote(text, safe="") for name, text in named.items()})

    def _segment(self, name: str) -> Segment:
        found = [one for one in self.request.model_fields[name].metadata if isinstance(one, Segment)]
        return found[0] if found else ANY_SEGMENT

    def _has(self, name: str) -> bool:
        return name in self.request.model_fields or isinstance(getattr(self.request, name, None), property)


@dataclass(frozen=True, eq=False)
class Operation(Stated[RequestT], Generic[RequestT, AnswerT]):
    """An operation with one answer: a view, a list of views, or plain JSON.

    Args:
        answer: the type of the answer.
        status: HTTP status of an answer.
        hides: what the answer lists and a rule may hide.
    """

    answer: type[AnswerT]
    _: KW_ONLY
    status: int = 200
    hides: Hides | None = None


@dataclass(frozen=True, eq=False)
class Streaming(Stated[RequestT], Generic[RequestT, EventT]):
    """An operation that answers with server-sent events, each of a kind that has a model.

    Args:
        events: the models by their kinds on the wire. ``error`` is taken: it ends a stream that fails.
    """

    events: Mapping[str, type[EventT]]

    def kind_of(self, event: EventT) -> str:
        """Return the kind under which ``event`` is sent."""
        return next(kind for kind, model in self.events.items() if model is type(event))


@dataclass(frozen=True, eq=False)
class Feed(Stated[RequestT], Generic[RequestT, NumberedT]):
    """An operation that tells numbered events without end, as server-sent events of their own kinds with their numbers.

    Whoever comes back goes on after the last one: by the field ``cursor`` of the request, or by ``Last-Event-ID``.

    Args:
        event: the model of every event.
    """

    event: type[NumberedT]

    def __post_init__(self) -> None:
        super().__post_init__()
        if "cursor" not in self.request.model_fields:
            raise TypeError(f"{self.name}: {self.request.__name__} has no cursor")


AnyOperation: TypeAlias = Operation[Any, Any] | Streaming[Any, Any] | Feed[Any, Any]


def _fields(text: str) -> tuple[str, ...]:
    return tuple(field for _, field, _, _ in string.Formatter().parse(text) if field)
