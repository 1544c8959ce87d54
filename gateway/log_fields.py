"""The lines that the gateway logs: one for each event, as ``key=value`` or JSON, without payloads and secrets.

If systemd's journal reads the stream, each line begins with its priority, such as ``<4>``, which the journal takes off:
``journalctl -p warning`` shows warnings and worse [sd-daemon(3), systemd.exec(5) at ``JOURNAL_STREAM``].

Modules log with the standard library, and pass the fields of an event beside its text::

    logger.warning("login refused", extra=about(peer=port.peer, user=user, reason=describe(code)))
"""

import json
import logging
import os
import re
import sys
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, TextIO

WINDOW_S = 10.0
LINES_OF_PEER_MAX = 5  # of one event and one peer in a window; of one client if the event has no peer
LINES_OF_EVENT_MAX = 50  # of one event in a window, from all peers
WINDOWS_MAX = 10_000
PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (0, 7))
"""Levels from which on a line has a priority [sd-daemon(3)]."""
VALUE_MAX = 256  # characters; a client chooses its identifier and its topics
TRACEBACK_MAX = 8192  # characters

LEFT_OUT = "lines left out"
Fields = dict[str, Any]


def about(**fields: Any) -> dict[str, Fields]:
    """Returns the fields of an event, for ``extra``; lines are counted by event and ``peer``, else by ``client``."""
    return {"about": fields}


def start_logging(*, as_json: bool = False, stream: TextIO = sys.stderr) -> None:
    """Makes this process log to a stream, by the rules of this module."""
    handler = LimitedHandler(stream)
    formatter = JsonFormatter() if as_json else KeyValueFormatter()
    handler.setFormatter(JournalFormatter(formatter) if is_journal(stream) else formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(True)


class KeyValueFormatter(logging.Formatter):
    """``time=… level=… part=… event=…`` and the fields of the event; a value in quotes is a JSON string."""

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{key}={_quote(value)}" for key, value in _fields(record))


class JsonFormatter(logging.Formatter):
    """The same as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(dict(_fields(record)))


class JournalFormatter(logging.Formatter):
    """Lines of another formatter, each behind its priority.

    Args:
        inner: makes the lines.
    """

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        return priority_of(record.levelno) + self._inner.format(record)


def priority_of(level: int) -> str:
    """Returns what a line of a level begins with in the journal."""
    return next(f"<{number}>" for least, number in PRIORITIES if level >= least)


def is_journal(stream: TextIO) -> bool:
    """Whether systemd's journal reads a stream."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


@dataclass(slots=True)
class _Window:
    """How many lines of one event, of one peer or of all, were written since a time."""

    since_s: float
    last: logging.LogRecord
    lines: int = 0
    left_out: int = 0


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes the first lines of an event in each window, then one that says how many were left out."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._windows: OrderedDict[tuple[str, ...], _Window] = OrderedDict()  # the oldest first

    def emit(self, record: logging.LogRecord) -> None:
        self._end_windows(record.created)
        if self._is_within_limits(record):
            super().emit(record)

    def close(self) -> None:
        self._end_windows(None)
        super().close()

    def _is_within_limits(self, record: logging.LogRecord) -> bool:
        event: tuple[str, ...] = (record.name, str(record.msg))
        limits = [(event, LINES_OF_EVENT_MAX)]
        if cause := _cause(getattr(record, "about", {})):
            limits.insert(0, ((*event, *cause), LINES_OF_PEER_MAX))
        for key, most in limits:
            window = self._windows.setdefault(key, _Window(record.created, record))
            if window.lines >= most:
                window.left_out += 1
                window.last = record
                return False
        for key, _ in limits:
            self._windows[key].lines += 1
        return True

    def _end_windows(self, now_s: float | None) -> None:
        """Closes the windows that are over, or all of them if there is no time or the clock was set back."""
        while self._windows:
            window = next(iter(self._windows.values()))
            is_open = now_s is not None and 0 <= now_s - window.since_s < WINDOW_S
            if is_open and len(self._windows) < WINDOWS_MAX:
                return
            key, _ = self._windows.popitem(last=False)
            if window.left_out:
                super().emit(_left_out(key, window))


def _left_out(key: tuple[str, ...], window: _Window) -> logging.LogRecord:
    last = window.last
    record = logging.LogRecord(last.name, last.levelno, last.pathname, last.lineno, LEFT_OUT, None, None)
    record.about = {"of": key[1], "count": window.left_out} | ({key[2]: key[3]} if key[2:] else {})
    return record


def _cause(fields: Fields) -> tuple[str, ...]:
    """Returns the field that names what caused an event, and its value: the peer, else the client; () without both.

    A peer counts without its TCP port, so that a client that connects again is the same peer.
    """
    if "peer" in fields:
        return "peer", re.sub(r":\d{1,5}$", "", str(fields["peer"]))
    return ("client", str(fields["client"])) if "client" in fields else ()


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    time = datetime.fromtimestamp(record.created, UTC)
    yield "time", time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    yield "level", record.levelname.lower()
    yield "part", record.name
    # A critical event ends the gateway: its text is our own, and all of it helps.
    most = TRACEBACK_MAX if record.levelno >= logging.CRITICAL else VALUE_MAX
    yield "event", _shorten(_message(record), most)
    for key, value in getattr(record, "about", {}).items():
        value = _tellable(value)
        yield key, _shorten(str(value), most) if not isinstance(value, int | float | None) else value
    if record.exc_info and record.exc_info[0]:
        yield "traceback", _shorten(logging.Formatter().formatException(record.exc_info), TRACEBACK_MAX)


def _message(record: logging.LogRecord) -> str:
    arguments = record.args
    if not arguments:
        return str(record.msg)
    if isinstance(arguments, tuple):
        return str(record.msg) % tuple(map(_tellable, arguments))
    return str(record.msg) % {key: _tellable(value) for key, value in arguments.items()}


class _Untold:
    """Stands for a value that is not for the log, such as a payload: its kind and size."""

    def __init__(self, value: object) -> None:
        size = f" of {len(value)}" if isinstance(value, bytes | bytearray | memoryview) else ""
        self._text = f"<{type(value).__name__}{size}>"

    def __repr__(self) -> str:
        return self._text


def _tellable(value: Any) -> Any:
    """Returns text and numbers as they are, and of any other value, which might hold bytes, only its kind."""
    if isinstance(value, str):
        return value.replace("\0", "")  # of a visiting session
    return value if isinstance(value, int | float | BaseException | PurePath | None) else _Untold(value)


def _shorten(text: str, most: int = VALUE_MAX) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _quote(value: Any) -> str:
    text = "" if value is None else str(value)
    if re.fullmatch(r'[^\s"=\\]+', text) and text.isprintable():
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())
