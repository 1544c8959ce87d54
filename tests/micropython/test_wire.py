"""wire on a real MicroPython."""

from pathlib import Path

import pytest

from tests.micropython.runner import compile_package, run_program
from tests.wire.test_receipt import GOLDEN, GOLDEN_LANDED
from tools.lab.micropython import MicroPython
from wire.codec.packets import Publish
from wire.multicast.sender import MulticastSender
from wire.receipt import join_signature, receipt_topic


def test_golden_packets_are_the_same(micropython: MicroPython) -> None:
    good, _, bad = map(int, run_program(micropython, "golden_packets").split())
    assert good > 30
    assert bad > 80


def test_topics_identity_and_byte_stuffing_are_the_same(micropython: MicroPython) -> None:
    run_program(micropython, "primitives")


def test_connections_talk_and_stand_noise(micropython: MicroPython, seed: int) -> None:
    assert int(run_program(micropython, "connections", seed, 100_000)) >= 100_000


def test_multicast_datagrams_are_the_same_and_hostile_ones_leave_nothing(micropython: MicroPython) -> None:
    sender = MulticastSender(b"12345678", 1, bytes(range(32)))
    for payload in (b"1", b"2"):
        sender.add(Publish("displays/\u00e9", payload).encode())
    assert int(run_program(micropython, "multicast", sender.seal().hex(), heap_kib=128)) == 0


def test_receipts_are_the_same_and_changed_ones_leave_a_value_error(micropython: MicroPython, seed: int) -> None:
    origin = "$a/b+c%é\x85\ufffe"
    shown = [one.decode() for one in (GOLDEN, GOLDEN_LANDED, join_signature(GOLDEN, b"\xfb\xf0" * 32))]
    shown += [one.encode().hex() for one in (receipt_topic(origin), origin)]
    assert int(run_program(micropython, "receipts", seed, *shown, heap_kib=96)) > 0


@pytest.mark.parametrize("run", range(2))
def test_serial_link_carries_whole_streams_over_bad_lines(micropython: MicroPython, seed: int, run: int) -> None:
    assert run_program(micropython, "link", seed + 100 * run).count("\n") == 5


def test_client_and_link_run_in_64_kib_and_keep_nothing_of_what_is_acknowledged(
    micropython: MicroPython, tmp_path: Path
) -> None:
    compile_package("wire", tmp_path)
    heap = run_program(micropython, "client_import", heap_kib=64, packages=tmp_path).split()
    link, client, connection, growth = map(int, heap)
    assert link + client < 83_000  # of 128 KiB: this machine's words are twice as long as a board's
    assert connection < 4_000
    assert growth == 0
