"""The gateway's log: a line an event, no flood, no payload, no secret."""

import io
import json
import logging
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.log_fields import (
    LINES_OF_EVENT_MAX,
    LINES_OF_PEER_MAX,
    WINDOW_S,
    JsonFormatter,
    KeyValueFormatter,
    LimitedHandler,
    about,
    start_logging,
)
from tests.gateway.support import connected, running, said_of, until

CANARY = "c4n4ry-7f3a"


class Log:
    """A logger of its own whose lines can be read, at times of the test's own."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self.now_s = 1_000_000.0
        self._stream = io.StringIO()
        self.handler = LimitedHandler(self._stream)
        self.handler.setFormatter(formatter)

    def write(self, message: object, *arguments: object, level: int = logging.INFO, **fields: object) -> None:
        record = logging.LogRecord("gateway.test", level, "test.py", 1, message, arguments, None)
        record.created = self.now_s
        record.about = fields
        self.handler.handle(record)

    def lines(self) -> list[str]:
        text = self._stream.getvalue()
        self._stream.seek(0)
        self._stream.truncate()
        return text.splitlines()


@pytest.fixture
def log() -> Log:
    return Log(KeyValueFormatter())


@pytest.fixture
def whole_log() -> Iterator[io.StringIO]:
    """All that this process logs, on every level, as the gateway writes it."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    root.handlers = []
    start_logging(stream=stream)
    root.setLevel(logging.DEBUG)
    try:
        yield stream
    finally:
        root.handlers, root.level = before, level


def test_an_event_is_one_line_of_keys_and_values(log: Log) -> None:
    log.write("client connected", client="sensor 1", peer="192.0.2.1:40000", sessions=3, user=None)
    assert log.lines() == [
        '1970-01-12T13:46:40.000Z level=info part=gateway.test event="client connected"'
        ' client="sensor 1" peer=192.0.2.1:40000 sessions=3 user=""'.replace("1970", "time=1970", 1)
    ]


def test_an_event_is_one_object_of_json() -> None:
    log = Log(JsonFormatter())
    log.write("client connected", client="a\nb", sessions=3, user=None)
    (line,) = log.lines()
    assert json.loads(line) == {
        "time": "1970-01-12T13:46:40.000Z",
        "level": "info",
        "part": "gateway.test",
        "event": "client connected",
        "client": "a\nb",
        "sessions": 3,
        "user": None,
    }


def test_an_ordinary_message_with_arguments_is_an_event_too(log: Log) -> None:
    log.write("%s is %d", "a", 3)
    assert 'event="a is 3"' in log.lines()[0]


@pytest.mark.parametrize(
    "name", ["a\nlevel=error event=forged", "\x1b[31mred", "\u202eright to left", 'a" b="c', "a\x85b"]
)
def test_a_client_forges_no_line_and_no_field_by_its_name(log: Log, name: str) -> None:
    log.write("%s connected", name, client=name)
    (line,) = log.lines()
    assert line.isprintable()
    assert [word.partition("=")[0] for word in shlex.split(line)] == ["time", "level", "part", "event", "client"]
    assert json.loads(line.partition("client=")[2]) == name


def test_a_name_that_is_too_long_is_cut(log: Log) -> None:
    log.write("connected", client="x" * 60_000)
    assert len(log.lines()[0]) < 400


def test_a_traceback_stays_on_its_line(whole_log: io.StringIO) -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("gateway.test").exception("failed")
    (line,) = whole_log.getvalue().splitlines()
    assert "two\\nlines" in line
    assert "test_logs.py" in line


def test_bytes_and_whatever_may_hold_them_are_not_told(log: Log) -> None:
    secret = CANARY.encode()
    log.write("got %s and %r", secret, bytearray(secret), password=secret, packet=[secret], view=memoryview(secret))
    log.write("got %(payload)r", {"payload": secret})
    lines = log.lines()
    assert CANARY not in "".join(lines)
    assert 'event="got <bytes of 11> and <bytearray of 11>" password="<bytes of 11>" packet=<list>' in lines[0]
    assert 'event="got <bytes of 11>"' in lines[1]


def test_a_peer_that_repeats_itself_is_counted_and_others_are_still_heard(log: Log) -> None:
    for port in range(100):
        log.write("login refused", peer=f"192.0.2.1:{port}")
    log.write("login refused", peer="192.0.2.2:1")
    log.write("something else", peer="192.0.2.1:1")
    assert len(log.lines()) == LINES_OF_PEER_MAX + 2
    log.now_s += WINDOW_S
    log.write("login refused", peer="192.0.2.1:7")
    lines = log.lines()
    assert len(lines) == 2
    assert 'event="lines left out" of="login refused" count=95 peer=192.0.2.1' in lines[0]
    assert "peer=192.0.2.1:7" in lines[1]


def test_an_event_without_a_peer_is_counted_by_its_client(log: Log) -> None:
    for _ in range(100):
        log.write("messages refused", client="next-central")
    log.write("messages refused", client="pump-3")
    assert len(log.lines()) == LINES_OF_PEER_MAX + 1
    log.now_s += WINDOW_S
    log.write("messages refused", client="next-central")
    assert 'event="lines left out" of="messages refused" count=95 client=next-central' in log.lines()[0]


def test_an_event_that_many_peers_cause_is_counted_too(log: Log) -> None:
    for host in range(200):
        log.write("login refused", peer=f"192.0.2.{host}:1")
    assert len(log.lines()) == LINES_OF_EVENT_MAX
    log.now_s += WINDOW_S
    log.write("quiet again")
    assert f'of="login refused" count={200 - LINES_OF_EVENT_MAX}' in log.lines()[0]


def test_one_event_with_many_arguments_is_one_event(log: Log) -> None:
    for number in range(200):
        log.write("%s connected", f"client-{number}")
    assert len(log.lines()) == LINES_OF_EVENT_MAX


def test_what_was_left_out_is_told_at_the_end(log: Log) -> None:
    for _ in range(LINES_OF_PEER_MAX + 3):
        log.write("login refused", peer="a")
    log.lines()
    log.handler.close()
    assert [line.partition("count=")[2] for line in log.lines()] == ["3 peer=a"]


def test_a_clock_that_is_set_does_not_silence_the_log(log: Log) -> None:
    for _ in range(10):
        log.write("login refused", peer="a")
    log.lines()
    log.now_s -= 1_000_000
    log.write("login refused", peer="a")
    assert [re.sub(".*event=", "", line) for line in log.lines()] == [
        '"lines left out" of="login refused" count=5 peer=a',
        '"login refused" peer=a',
    ]


def test_about_is_how_an_event_says_what_it_is_about(whole_log: io.StringIO) -> None:
    logging.getLogger("gateway.test").warning("login refused", extra=about(user="alice"))
    assert whole_log.getvalue().endswith('event="login refused" user=alice\n')


async def test_a_broker_logs_its_clients_but_neither_payload_nor_password(
    tmp_path: Path, whole_log: io.StringIO
) -> None:
    async with running(tmp_path) as broker:
        secrets = {"username": "alice", "password": CANARY.encode()}
        sensor = await connected(broker, "sensor", **secrets)
        forger = await connected(broker, "forger")
        await sensor.subscribe("a/#")
        await forger.publish("a/b", CANARY.encode())
        assert (await sensor.receive()).payload == CANARY.encode()
        sensor.write(b"\x30\xff\xff\xff\xff" + CANARY.encode())
        await sensor.event()
        forger.write(b"\x32\x11\x00\x01a\x00\x00\x00" + CANARY.encode())
        await forger.event()
    log = whole_log.getvalue()
    assert "sensor" in log
    assert "forger" in log
    assert CANARY not in log


async def test_a_refused_subscription_is_a_line_for_each_subscribe(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    rules = tmp_path / "rules"
    rules.write_text("allow * subscribe public/#\n")
    async with running(tmp_path / "store", acl=str(rules)) as broker:
        client = await connected(broker, "pump")
        assert await client.subscribe("public/a") == [1]
        assert await client.subscribe("public/b", "locks/#", "doors/#") == [1, 0x87, 0x87]
        await client.disconnect()
    (about,) = said_of(caplog, "subscription refused")
    assert about["peer"].startswith("127.0.0.1:")
    del about["peer"]
    assert about == {"client": "pump", "user": "", "filter": "locks/#", "refused": 2, "reason": "not authorized (0x87)"}


async def test_a_clean_disconnect_reads_as_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running(tmp_path) as broker:
        client = await connected(broker, "pump")
        await client.disconnect()
        await until(lambda: said_of(caplog, "disconnected"), "the line in the log")
        (await connected(broker, "pump")).cut()
        await until(lambda: len(said_of(caplog, "disconnected")) == 2, "the line in the log")
    clean, lost = (about["reason"] for about in said_of(caplog, "disconnected"))
    assert clean == "the client disconnected"
    assert lost != clean
