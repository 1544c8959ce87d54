"""Packets of Improv over serial against their specification (improv-wifi.com/serial), and whatever else a line has."""

import random

import pytest

from device.field import improv
from device.field.improv import BAD, DATA_MAX, Reader, packet, read_texts, result

MOST_KEPT = improv.HEAD_BYTES + DATA_MAX


def frame(text: str) -> bytes:
    """The bytes of a packet as a person writes it: IMPROV, and numbers in hexadecimal."""
    return b"IMPROV" + bytes.fromhex(text.removeprefix("IMPROV"))


SETTINGS = b"\x01\x1e\x0cMyWirelessAP\x10mysecurepassword"  # the example of the specification
COMMANDS = [  # IMPROV adds up to 0x1DD
    (frame("IMPROV 01 03 02 02 00 e5"), (2, b"")),
    (frame("IMPROV 01 03 02 03 00 e6"), (3, b"")),
    (frame("IMPROV 01 03 02 04 00 e7"), (4, b"")),
    (frame("IMPROV 01 03 02 05 00 e8"), (5, b"")),
    (frame("IMPROV 01 03 20") + SETTINGS + b"\xc1", (1, SETTINGS[2:])),
]
PACKETS = [
    (packet(improv.STATE, b"\x02"), frame("IMPROV 01 01 01 02 e2 0a")),
    (packet(improv.STATE, b"\x03"), frame("IMPROV 01 01 01 03 e3 0a")),
    (packet(improv.STATE, b"\x04"), frame("IMPROV 01 01 01 04 e4 0a")),
    (packet(improv.ERROR, b"\x00"), frame("IMPROV 01 02 01 00 e1 0a")),
    (packet(improv.ERROR, b"\xff"), frame("IMPROV 01 02 01 ff e0 0a")),
    (result(1, []), frame("IMPROV 01 04 02 01 00 e5 0a")),
    (result(4, [b"My", b"-60", b"YES"]), frame("IMPROV 01 04 0d 04 0b 02 4d 79 03 2d 36 30 03 59 45 53 50 0a")),
]


@pytest.mark.parametrize(("content", "command"), COMMANDS)
def test_command_of_the_specification_is_read(content: bytes, command: tuple[int, bytes]) -> None:
    assert Reader().feed(content, 0) == [command]
    assert Reader().feed(content + b"\n", 0) == [command]  # browsers end it with a line feed


@pytest.mark.parametrize(("made", "content"), PACKETS)
def test_packet_is_the_specification_s(made: bytes, content: bytes) -> None:
    assert made == content


def test_texts_of_the_example_are_read() -> None:
    assert read_texts(SETTINGS[2:]) == [b"MyWirelessAP", b"mysecurepassword"]
    assert read_texts(b"\x00\x00") == [b"", b""]
    assert read_texts(b"\x02a") is None


@pytest.mark.parametrize(
    "content",
    [
        frame("IMPROV 01 03 02 02 00 00"),  # a wrong checksum
        packet(3, b"\x02"),  # a command without the length of its data
        packet(3, b""),
        packet(3, b"\x02\x01"),  # whose data is shorter than it says
        packet(3, b"\x02\x00x"),  # or longer
        frame("IMPROV 01 03 ff"),  # longer than any command
    ],
)
def test_command_that_cannot_be_read_is_told(content: bytes) -> None:
    assert Reader().feed(content, 0) == [(BAD, b"")]


@pytest.mark.parametrize(
    "content",
    [b"", b"\r\n>>> ", b"IMPROVE", packet(1, b"\x02"), packet(9, b"abc"), frame("IMPROV 02 03 02 02 00 e6")],
    ids=["nothing", "a prompt", "a word", "a state", "an unknown kind", "another version"],
)
def test_what_is_no_command_is_not_heard_and_ends_before_the_next_packet(content: bytes) -> None:
    assert Reader().feed(content + COMMANDS[0][0], 0) == [COMMANDS[0][1]]


def test_packet_comes_in_pieces_and_several_come_at_once() -> None:
    whole = b"".join(content for content, _ in COMMANDS)
    wanted = [command for _, command in COMMANDS]
    assert Reader().feed(whole, 0) == wanted
    reader = Reader()
    assert [one for at, byte in enumerate(whole) for one in reader.feed(bytes([byte]), at)] == wanted


def test_packet_within_the_length_of_a_spoiled_one_is_found() -> None:
    spoiled = frame("IMPROV 01 03 20 02 00 e5")  # its length was 2
    assert Reader().feed(spoiled + COMMANDS[1][0] + bytes(40), 0)[:2] == [(BAD, b""), COMMANDS[1][1]]


def test_packet_that_was_cut_does_not_keep_the_next_one_after_a_pause() -> None:
    reader = Reader()
    assert reader.feed(COMMANDS[4][0][:20], 0) == []
    assert reader.feed(b"", improv.PAUSE_MS - 1) == [] and reader.kept == 20
    assert reader.feed(b"", improv.PAUSE_MS) == [] and reader.kept == 0
    assert reader.feed(COMMANDS[0][0], improv.PAUSE_MS + 1) == [COMMANDS[0][1]]


def test_rest_of_a_packet_that_is_read_late_still_belongs_to_it() -> None:
    reader = Reader()
    assert reader.feed(COMMANDS[4][0][:7], 0) == []
    assert reader.feed(COMMANDS[4][0][7:], 10_000) == [COMMANDS[4][1]]


def test_noise_on_the_line_costs_a_command_at_most_and_never_makes_another(seed: int) -> None:
    chance = random.Random(seed)
    for turn in range(300):
        reader = Reader()
        now_ms = 0
        for _ in range(chance.randrange(1, 5)):
            spoiled = bytearray(chance.choice(COMMANDS)[0])
            spoiled[chance.randrange(len(spoiled))] ^= 1 << chance.randrange(8)
            noise = chance.randbytes(chance.randrange(30)) + bytes(spoiled) + chance.randbytes(chance.randrange(30))
            heard = reader.feed(noise, now_ms)
            assert set(heard) <= {(BAD, b"")}, (turn, noise)
            now_ms += improv.PAUSE_MS
            assert reader.feed(b"", now_ms) == []
        content, command = chance.choice(COMMANDS)
        assert reader.feed(content, now_ms) == [command]


def test_any_bytes_leave_a_reader_that_works_and_keeps_little(seed: int) -> None:
    chance = random.Random(seed)
    pieces = [b"IMPROV", b"\x01", b"\x03", b"I", b"IMPR", b"\xff", b"\x64", bytes(50), COMMANDS[4][0]]
    reader = Reader()
    for now_ms in range(2000):
        data = b"".join(chance.choice(pieces) for _ in range(chance.randrange(6))) + chance.randbytes(3)
        for command, content in reader.feed(data[:128], now_ms):
            assert 0 <= command < 256 and len(content) <= DATA_MAX
        assert reader.kept <= MOST_KEPT
    assert reader.feed(b"", 10_000) == []
    assert reader.feed(COMMANDS[0][0], 10_000) == [COMMANDS[0][1]]


def test_answers_are_fewer_than_the_bytes_that_ask_for_them(seed: int) -> None:
    """A line that is all headers makes no flood of answers."""
    worst = b"IMPROV\x01\x03\xff" * 100
    asked = Reader().feed(worst, 0)
    assert len(asked) == 100
    assert len(asked) * len(packet(improv.ERROR, b"\x01")) <= len(worst) * 12 / 9
