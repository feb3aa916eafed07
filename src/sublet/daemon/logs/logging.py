"""Structured logs on stderr, for people or as JSON, with secrets taken out (DESIGN 10)."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from sublet.daemon.logs.log_file import LogFile
from sublet.daemon.logs.log_limit import LogLimit
from sublet.protocol.patterns import Pattern
from sublet.protocol.text import clean

REDACTED = "[redacted]"
MAX_VALUE_CHARS = 8_000
MAX_DEPTH = 6
_SECRET_WORDS = frozenset(
    ("token", "secret", "password", "passphrase", "credential", "credentials", "authorization", "cookie", "proof")
)
"""A field is secret if this is the last word of its name."""
_SECRET_KEYS = frozenset(("private_key", "mac_key", "api_key", "apikey", "signing_key", "seed", "pair_link", "link"))
_MULTILINE = frozenset(("exception", "stack"))
_SECRET_VALUES = (
    Pattern(r"()sblt_[A-Za-z0-9_-]{8,}"),  # our bearer tokens
    Pattern(r"(#)1\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_.-]+"),  # what makes a pairing link usable
    Pattern(r"(?i)(bearer )[A-Za-z0-9._~+/=-]{8,}"),
    Pattern(r"()-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", dot_all=True),
)
_NOISY = ("watchfiles", "httpx", "httpcore", "asyncssh", "uvicorn", "a2a", "mcp", "asyncio", "hpack", "sse_starlette")


def configure_logging(
    level: str = "info", stream: TextIO | None = None, *, as_json: bool | None = None, own_file: str | None = None
) -> None:
    """Send all logs of this process, ours and libraries', to one stream.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``.
        stream: stderr by default; never stdout, which belongs to ``--json`` and MCP.
        as_json: one JSON object per line; by default where the stream is no terminal.
        own_file: path of the daemon's own log, which is kept small where the stream leads there.
    """
    stream = stream or sys.stderr
    as_json = not stream.isatty() if as_json is None else as_json
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # The traceback becomes text before redaction, since an exception's message may hold a secret too.
    last: list[Processor] = [structlog.processors.format_exc_info, redact]
    renderer: Processor = (
        structlog.processors.JSONRenderer(ensure_ascii=True) if as_json else structlog.dev.ConsoleRenderer()
    )
    handler = logging.StreamHandler(stream) if own_file is None else LogFile(stream, own_file)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last, renderer],
        )
    )
    if number > logging.DEBUG:
        # Who asks for debug wants all; otherwise no caller pushes out what others have left in the log.
        handler.addFilter(LogLimit(handler))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(number, logging.WARNING) if number > logging.DEBUG else logging.INFO)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Take secrets out of a log entry, by the names of its fields and by the looks of their values."""
    return {key: _safe(key, value, 0) for key, value in event.items()}


def _safe(key: str, value: object, depth: int) -> object:
    if _is_secret(key) and value is not None and not isinstance(value, bool):
        return REDACTED
    if isinstance(value, str):
        text = _safe_text(value)
        # A line break in somebody's words must not start what looks like another entry.
        return text if key in _MULTILINE else text.replace("\n", "\\n")
    if isinstance(value, int | float) or value is None:
        return value
    if depth >= MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {str(inner): _safe(str(inner), item, depth + 1) for inner, item in value.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray):
        return [_safe("", item, depth + 1) for item in value]
    return _safe_text(repr(value))


def _is_secret(key: str) -> bool:
    key = key.lower().replace("-", "_")
    return key in _SECRET_KEYS or key.endswith("private_key") or key.rpartition("_")[2] in _SECRET_WORDS


def _safe_text(text: str) -> str:
    # Cut first, so that no pattern runs over a text without bound; cleaned, since peers' words end up in logs too.
    text = clean(text, MAX_VALUE_CHARS)
    for pattern in _SECRET_VALUES:
        text = pattern.sub(lambda found: f"{found[1]}{REDACTED}", text)
    return text
