"""A TCP port to a name with several addresses."""

import select
import socket
from collections.abc import Iterator

import pytest

from device.ports import Down, Up
from device.ports.tcp import Tcp
from device.watchdog import NoWatchdog


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        bound.settimeout(10)
        yield bound


def port_to(addresses: list[str], number: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Tcp, select.poll]:
    """A port to a name that has these addresses."""
    families = [socket.AF_INET6 if ":" in one else socket.AF_INET for one in addresses]
    found = [
        (family, socket.SOCK_STREAM, 0, "", (one, number)) for family, one in zip(families, addresses, strict=True)
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments: found)
    poller = select.poll()
    return Tcp("broker.example", number, poller, NoWatchdog()), poller


def first_event(port: Tcp, poller: select.poll, now_ms: int = 0) -> object:
    """What the port says first; time goes on where nothing happens."""
    while (event := port.next_event()) is None:
        ready = poller.poll(100)
        now_ms += 0 if ready else 2_000
        port.advance(ready[0][1] if ready else 0, now_ms)
    return event


@pytest.mark.parametrize("dead", [["127.0.0.2"], ["::1"], ["127.0.0.2", "::1", "127.0.0.3"]])
def test_address_that_refuses_is_followed_by_the_next_one(
    dead: list[str], listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, poller = port_to([*dead, "127.0.0.1"], listener.getsockname()[1], monkeypatch)
    port.open(0)
    assert isinstance(first_event(port, poller), Up)
    connection, _ = listener.accept()
    with connection:
        port.send(b"hello", 0)
        assert connection.recv(5) == b"hello"
    port.close()


def test_address_that_does_not_answer_is_followed_by_the_next_one(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.2", listener.getsockname()[1]))
        full.listen(0)
        with socket.create_connection(full.getsockname()):  # its queue is full now: the next SYN gets no answer
            port, poller = port_to(["127.0.0.2", "127.0.0.1"], listener.getsockname()[1], monkeypatch)
            port.open(0)
            assert isinstance(first_event(port, poller), Up)
            connection, _ = listener.accept()
            connection.close()
            port.close()


def test_name_of_which_no_address_answers_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, but it does not listen
        port, poller = port_to(["127.0.0.2", "127.0.0.1"], closed.getsockname()[1], monkeypatch)
        port.open(0)
        event = first_event(port, poller)
        assert isinstance(event, Down) and "refused" in event.text
        assert port.next_event() is None
        port.close()
