"""The send and receive windows, without any connection around them."""

import pytest

from wire.connection.windows import ReceiveWindow, SendWindow
from wire.errors import LocalProtocolError, RemoteProtocolError
from wire.reasons import PROTOCOL_ERROR, RECEIVE_MAXIMUM_EXCEEDED


def test_send_window_gives_places_up_to_its_limit() -> None:
    window = SendWindow(2)
    assert (window.acquire(), window.acquire()) == (1, 2)
    assert (window.quota, len(window)) == (0, 2)
    with pytest.raises(LocalProtocolError):
        window.acquire()
    assert window.release(1)
    assert not window.release(1)
    assert (window.quota, 1 in window, 2 in window) == (1, False, True)


def test_chosen_identifier_is_taken_unless_in_use() -> None:
    window = SendWindow(9)
    assert window.acquire(65_535) == 65_535
    for identifier in (65_535, 0, 65_536, -1):
        with pytest.raises(LocalProtocolError):
            window.acquire(identifier)
    assert len(window) == 1


def test_next_identifier_passes_those_in_use_and_wraps() -> None:
    window = SendWindow(65_535)
    window.acquire(2)
    assert [window.acquire(), window.acquire()] == [1, 3]
    for _ in range(65_532):
        window.acquire()
    assert window.quota == 0
    assert window.release(700)
    assert window.acquire() == 700


def test_reserved_identifier_takes_no_place() -> None:
    window = SendWindow(1)
    request = window.reserve()
    assert window.quota == 1
    with pytest.raises(LocalProtocolError):
        window.acquire(request)
    message = window.acquire()
    assert message != request
    assert window.release(request)
    assert window.quota == 0


def test_own_identifiers_begin_where_a_session_has_none_in_use() -> None:
    window = SendWindow(10, first=65_534)
    window.acquire(65_535)
    assert [window.reserve(), window.reserve()] == [65_534, 1]


def test_all_identifiers_in_use_is_an_error_and_no_endless_search() -> None:
    window = SendWindow(65_536)
    for _ in range(65_535):
        window.acquire()
    with pytest.raises(LocalProtocolError):
        window.acquire()


def test_receive_window_refuses_what_goes_beyond_our_receive_maximum() -> None:
    window = ReceiveWindow(1)
    window.open(7)
    with pytest.raises(RemoteProtocolError) as caught:
        window.open(8)
    assert caught.value.reason_code == RECEIVE_MAXIMUM_EXCEEDED
    window.acknowledge(7)
    window.open(8)
    assert 8 in window
    assert len(window) == 1


def test_receive_window_refuses_an_identifier_still_open() -> None:
    window = ReceiveWindow(5)
    window.open(7)
    with pytest.raises(RemoteProtocolError) as caught:
        window.open(7)
    assert caught.value.reason_code == PROTOCOL_ERROR
    with pytest.raises(LocalProtocolError):
        window.acknowledge(8)
