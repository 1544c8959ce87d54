"""Both sides of QoS 2: what must be on flash before PUBREL, PUBREC and PUBCOMP go out."""

import pytest

from flash_store.errors import MessageTooLarge
from flash_store.incoming import Incoming
from flash_store.log import Log
from tests.flash_store.support import formatted, mounted


def test_a_pubrec_is_noted_at_once_in_one_program_of_18_bytes_at_most() -> None:
    flash, log = mounted()
    message_id = log.append("t", b"x", qos=2)
    before = len(flash.operations)
    assert log.note_pubrec(message_id)
    assert [len(operation.content) for operation in flash.operations[before:]] == [16]
    assert log.note_pubrec(message_id)
    assert len(flash.operations) == before + 1, "a PUBREC that comes twice is written once"
    assert Log(flash).has_pubrec(message_id)


def test_a_message_without_pubrec_says_so_and_an_unknown_one_takes_none() -> None:
    log = Log(formatted())
    message_id = log.append("t", b"x", qos=2)
    assert not log.has_pubrec(message_id)
    assert not log.note_pubrec(message_id + 1)
    log.acknowledge(message_id)
    assert not log.has_pubrec(message_id)


def test_a_pubrec_outlives_the_relocation_of_its_message() -> None:
    flash, log = mounted()
    first = log.append("t", b"x", qos=2)
    log.note_pubrec(first)
    while flash.erase_counts[1] < 3:
        log.acknowledge(log.append("t", b"x" * 60))
        log.flush()
        log.idle()
    assert log.has_pubrec(first)
    assert Log(flash).has_pubrec(first)


@pytest.mark.parametrize(("granule", "sector_size"), [(8, 512), (16, 512), (256, 4096)])
def test_received_packet_identifiers_are_remembered_until_they_are_released(granule: int, sector_size: int) -> None:
    flash, log = mounted(granule, sector_size)
    incoming = Incoming(log.settings)
    for identifier in (7, 65535, 1):
        incoming.add(identifier)
    incoming.add(7)
    incoming.remove(65535)
    incoming.remove(12)
    for again in (incoming, Incoming(Log(flash).settings)):
        assert again.identifiers == [7, 1]
        assert 7 in again
        assert 65535 not in again


def test_remembering_more_than_a_receiver_may_have_on_the_way_is_refused() -> None:
    incoming = Incoming(Log(formatted()).settings)
    for identifier in range(1, 59):
        incoming.add(identifier)
    with pytest.raises(MessageTooLarge, match="58 packet identifiers are remembered already"):
        incoming.add(59)
    assert len(incoming.identifiers) == 58
