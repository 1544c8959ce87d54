"""Route numbers [docs/reference/route-numbers.md]: a route numbers the messages that it hands on.

`hf-via`, a user property = "{epoch:08x}/{numbers}/{gateway}/{route}": the epoch is the numbering's, and the
numbers are "42", or of the messages in a batch "42-541,543". A `/` or `%` in the gateway's name is written as `%2F` or
`%25`. The route's name comes last and is written as it is.

A statement is a message that says what the route has numbered, so that a reader of the messages knows what is missing.
"""

import json
from collections import namedtuple

from wire.identity import EPOCH_MAX, SEQ_MAX
from wire.runs import check_number, decode_runs, encode_runs

VIA_PROPERTY = "hf-via"
STATEMENT_TYPE = "application/vnd.holdfast.statement"
"""The content type of a statement."""
STATEMENT_TOPICS = "holdfast/statement/"
"""What the topic names of statements begin with."""
STATEMENT_VERSION = 1

Via = namedtuple("Via", ("epoch", "runs", "gateway", "route"))
"""What `hf-via` says. `runs` are (first, last) of consecutive numbers, the lowest first."""

Statement = namedtuple(
    "Statement",
    (
        "gateway",
        "route",
        "epoch",
        "statement",
        "first",
        "last",
        "origins",
        "dropped",
        "refused",
        "backfill",
        "left_out",
    ),
)
"""What a route says of its numbers `first` to `last`; `last` is `first - 1` where it gave none.

`epoch` is the numbering's, `statement` the statement's own number, from 1 on. `origins` are `HandedOn`s, `dropped`
are `DroppedRange`s, `refused` are runs of numbers. `backfill`: the route has a backfill with messages that no statement
covers yet. `left_out` are `LeftOutRuns`s.
"""

HandedOn = namedtuple("HandedOn", ("origin", "epoch", "highest", "messages", "first", "last"))
"""A route's part of one origin's messages.

`highest` is the highest seq that the route has come past. `messages` were handed on by this route, with seqs
from `first` to `last`; all three are 0 where there were none.
"""

DroppedRange = namedtuple("DroppedRange", ("reason", "consumer", "origin", "epoch", "first", "last", "messages"))
"""A range of dropped messages, as in the gateway's table `dropped`; it may have grown since an earlier statement."""

LeftOutRuns = namedtuple("LeftOutRuns", ("origin", "epoch", "runs"))
"""Messages of an origin that the route left out on purpose, by its filters or rules: runs of their seqs."""

_FIELDS = ("v", "gateway", "route", "epoch", "statement", "first", "last", "origins", "dropped", "refused")
_REASON_MAX = 32  # characters


def encode_via(epoch, runs, gateway, route):
    """Returns the value of `hf-via`. Raises ValueError if a part is out of range."""
    _check_names(gateway, route)
    check_number("epoch", epoch, 0, EPOCH_MAX)
    quoted = gateway.replace("%", "%25").replace("/", "%2F")
    return f"{epoch:08x}/{encode_runs(runs)}/{quoted}/{route}"


def decode_via(text):
    """Returns the Via in a value of `hf-via`. Raises ValueError naming the fault; each value has one spelling."""
    parts = _split_via(text)
    try:
        epoch = int(parts[0], 16)
    except ValueError:
        raise ValueError(f"epoch {parts[0][:32]!r} is not a number")
    runs = decode_runs(parts[1])
    gateway = _unquote(parts[2])
    if encode_via(epoch, runs, gateway, parts[3]) != text:
        raise ValueError(f"{text[:64]!r} is not how hf-via is spelt")
    return Via(epoch, runs, gateway, parts[3])


def gateway_of_via(text):
    """Returns the gateway in a value of `hf-via`, however many numbers that has. Raises ValueError if there is none."""
    return _unquote(_split_via(text)[2])


def encode_statement(statement):
    """Returns a statement's payload, JSON in UTF-8. Raises ValueError if a part is out of range."""
    _check(statement)
    values: list = [STATEMENT_VERSION] + list(statement[:6])
    values += [[list(one) for one in statement.origins], [list(one) for one in statement.dropped]]
    values.append(encode_runs(statement.refused) if statement.refused else "")
    members = [f"{_dump(name)}:{_dump(value)}" for name, value in zip(_FIELDS, values)]
    if statement.backfill:
        members.append('"backfill":true')
    if statement.left_out:
        left_out = [[one.origin, one.epoch, encode_runs(one.runs)] for one in statement.left_out]
        members.append(f'"left_out":{_dump(left_out)}')
    return ("{" + ",".join(members) + "}").encode()


def decode_statement(payload):
    """Returns the Statement in a payload. Raises ValueError naming the fault. Members of other names are ignored."""
    try:
        found = json.loads(bytes(payload).decode())
    except (ValueError, RecursionError):
        raise ValueError("a statement is JSON in UTF-8")
    if not isinstance(found, dict):
        raise ValueError("a statement is a JSON object")
    if found.get("v") != STATEMENT_VERSION:
        raise ValueError(f"version {found.get('v')!r} of a statement, expected {STATEMENT_VERSION}")
    for name in _FIELDS:
        if name not in found:
            raise ValueError(f"a statement needs {name!r}")
    if not isinstance(found["refused"], str):
        raise ValueError(f"refused {found['refused']!r} is no text")
    statement = Statement(
        found["gateway"],
        found["route"],
        found["epoch"],
        found["statement"],
        found["first"],
        found["last"],
        _rows(HandedOn, found["origins"]),
        _rows(DroppedRange, found["dropped"]),
        decode_runs(found["refused"]) if found["refused"] else [],
        found.get("backfill", False),
        [_left_out(one) for one in _rows(LeftOutRuns, found.get("left_out", []))],
    )
    _check(statement)
    return statement


def statement_topic(gateway, route):
    """Returns the topic name of a route's statements; `+` and `#`, which no topic name holds, become `_`."""
    return STATEMENT_TOPICS + f"{gateway}/{route}".replace("+", "_").replace("#", "_")


def _split_via(text):
    parts = text.split("/", 3)
    if len(parts) != 4:
        raise ValueError(f"expected epoch/numbers/gateway/route, not {text[:64]!r}")
    return parts


def _unquote(gateway):
    return gateway.replace("%2F", "/").replace("%25", "%")


def _rows(kind, rows):
    if not isinstance(rows, list) or any(not isinstance(row, list) or len(row) != _WIDTHS[kind] for row in rows):
        raise ValueError(f"expected a list of {kind.__name__}, each a list of {_WIDTHS[kind]}")
    return [kind(*row) for row in rows]


def _left_out(one):
    if not isinstance(one.runs, str):
        raise ValueError(f"left_out {one.runs!r} is no text")
    return LeftOutRuns(one.origin, one.epoch, decode_runs(one.runs))


_WIDTHS = {HandedOn: 6, DroppedRange: 7, LeftOutRuns: 3}


def _dump(value):
    return json.dumps(value, separators=(",", ":"))


def _check(statement):
    _check_names(statement.gateway, statement.route)
    check_number("epoch", statement.epoch, 0, EPOCH_MAX)
    check_number("statement", statement.statement, 1, SEQ_MAX)
    check_number("first", statement.first, 1, SEQ_MAX)
    check_number("last", statement.last, statement.first - 1, SEQ_MAX)
    if not isinstance(statement.backfill, bool):
        raise ValueError(f"backfill {statement.backfill!r} is neither true nor false")
    for one in statement.origins:
        _check_text("origin", one.origin)
        check_number("epoch", one.epoch, 0, EPOCH_MAX)
        check_number("messages", one.messages, 0, statement.last - statement.first + 1)
        check_number("last", one.last, 1 if one.messages else 0, SEQ_MAX if one.messages else 0)
        check_number("first", one.first, 1 if one.messages else 0, one.last)
        check_number("highest", one.highest, max(one.last, 1), SEQ_MAX)
    for one in statement.left_out:
        _check_text("origin", one.origin)
        check_number("epoch", one.epoch, 0, EPOCH_MAX)
    for one in statement.dropped:
        for name, text in (("reason", one.reason), ("consumer", one.consumer), ("origin", one.origin)):
            if not isinstance(text, str):
                raise ValueError(f"{name} {text!r} is no text")
        if not 0 < len(one.reason) <= _REASON_MAX:
            raise ValueError(f"reason {one.reason[:_REASON_MAX]!r} is empty or too long")
        check_number("epoch", one.epoch, 0, EPOCH_MAX)
        check_number("last", one.last, 0, SEQ_MAX)
        check_number("first", one.first, 0, one.last)
        check_number("messages", one.messages, 1, SEQ_MAX)


def _check_names(gateway, route):
    _check_text("gateway", gateway)
    _check_text("route", route)


def _check_text(what, text):
    if not isinstance(text, str) or not text:
        raise ValueError(f"{what} {text!r} is no text, or empty")
