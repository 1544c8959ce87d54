"""The serial link over simulated lines: what is sent in a stream arrives in order, once, uncorrupt, or not at all."""

from binascii import crc32
from struct import pack, unpack

import pytest

from tests.wire.link.world import World
from tools.lab.sim.virtual_line import Dice
from wire.errors import LocalProtocolError
from wire.link import HANDSHAKE_BYTES, Link, LinkData, LinkDown, LinkLog, LinkUp
from wire.link.frames import DISC, INFO, RNR, RR, SABM, UA, FrameDecoder, encode_frame, stuff

LINES: dict[str, dict] = {
    "perfect": {},
    "one byte at a time": {"chunk": 1},
    "lossy": {"lose": 25},
    "corrupting": {"corrupt": 1250},  # a bit error rate of 1e-4
    "noisy": {"insert": 20, "corrupt": 5000},
    "delayed": {"latency_ms": 300},
    "repeating": {"repeat": 20},
    "all of it": {"chunk": 16, "lose": 60, "corrupt": 2000, "insert": 60, "latency_ms": 50},
}


@pytest.mark.parametrize("line", LINES)
def test_both_streams_arrive_whole_over(line: str, seed: int) -> None:
    for run in range(8):
        world = World(seed + run, **LINES[line])
        world.finish(within_ms=300_000)
        world.check()
        assert len(world.ends[0].streams) == len(world.ends[1].streams) == 1


@pytest.mark.parametrize("line", LINES)
def test_streams_survive_cuts_and_restarts_over(line: str, seed: int) -> None:
    for run in range(12):
        world = World(seed + run, **LINES[line])
        for _ in range(6):
            world.run(20 + world.dice.roll(800))
            what = world.dice.roll(6)
            if what == 0:
                world.cut(world.dice.roll(3000))
            elif what == 4:
                world.disturb(world.dice.roll(1000))
            elif what == 5:
                world.erase(world.dice.roll(2), world.dice.roll(400))
            elif what == 1:
                world.ends[world.dice.roll(2)].link.open(world.now_ms)
            else:
                world.restart(world.dice.roll(2))
            world.check()
        world.mend()
        world.finish(within_ms=60_000)
        world.check()


@pytest.mark.parametrize(("corrupt", "share"), [(0, 0.94), (12_500, 0.90), (1_250, 0.70)])
def test_stream_uses_its_share_of_the_line(corrupt: int, share: float) -> None:
    world = World(seed=7, to_send=0, corrupt=corrupt)
    world.finish(within_ms=5_000)
    started_ms = world.now_ms
    world.ends[0].to_send = 200_000
    world.finish(within_ms=200_000 * 10)
    line_ms = 200_000 / 11.52
    assert line_ms / (world.now_ms - started_ms) >= share


def test_line_that_was_dead_carries_again_within_200_ms(seed: int) -> None:
    world = World(seed, to_send=20_000)
    world.ends[1].to_send = 0
    world.run(500)
    world.cut(5_000)
    world.run(5_000)
    before = len(world.ends[1].streams[-1][2])
    world.run(200)
    assert len(world.ends[1].streams[-1][2]) > before
    world.finish(within_ms=60_000)
    world.check()
    assert world.boots == 2
    assert len(world.ends[0].streams) == 1


def test_stalled_host_loses_nothing_and_needs_no_restart(seed: int) -> None:
    world = World(seed, to_send=20_000)
    world.run(300)
    world.deaf[1] = True
    world.run(60_000)
    world.deaf[1] = False
    world.finish(within_ms=60_000)
    world.check()
    assert len(world.ends[0].streams) == len(world.ends[1].streams) == 1


def test_not_a_byte_is_lost_across_flash_erases(seed: int) -> None:
    world = World(seed, to_send=60_000)
    device = world.ends[0].link
    for _ in range(10):
        world.run(100 + world.dice.roll(300))
        device.pause(world.now_ms)
        while not device.quiet:
            world.step()
        world.erase(0, 400)
        device.resume(world.now_ms)
    world.finish(within_ms=60_000)
    world.check()
    assert world.lines[1].dropped_bytes == 0
    assert len(world.ends[0].streams) == 1


def test_flash_erase_without_a_pause_costs_time_but_nothing_of_the_stream(seed: int) -> None:
    world = World(seed, to_send=20_000)
    world.run(300)
    world.erase(0, 400)
    world.finish(within_ms=60_000)
    world.check()
    assert world.lines[1].dropped_bytes > 0
    assert len(world.ends[0].streams) == 1


def test_noise_for_a_second_is_over_within_200_ms(seed: int) -> None:
    world = World(seed, to_send=20_000)
    world.run(500)
    world.disturb(1_000)
    world.run(1_000)
    before = [len(end.streams[-1][2]) for end in world.ends]
    world.run(200)
    assert all(len(end.streams[-1][2]) > length for end, length in zip(world.ends, before, strict=True))
    world.finish(within_ms=60_000)
    world.check()


def test_resume_that_is_lost_is_told_again(seed: int) -> None:
    world = World(seed, to_send=20_000)
    world.run(300)
    device = world.ends[0].link
    device.pause(world.now_ms)
    while not device.quiet:
        world.step()
    device.resume(world.now_ms)
    world.cut(20)
    before = len(world.ends[0].streams[-1][2])
    world.run(300)
    assert len(world.ends[0].streams[-1][2]) > before
    world.finish(within_ms=60_000)
    world.check()


@pytest.mark.parametrize("line", ["lossy", "all of it"])
def test_pause_and_resume_come_through_on(line: str, seed: int) -> None:
    world = World(seed, to_send=8_000, **LINES[line])
    for _ in range(5):
        world.run(200)
        device = world.ends[0].link
        device.pause(world.now_ms)
        give_up_ms = world.now_ms + 30_000
        while not device.quiet:
            assert world.now_ms < give_up_ms
            world.step()
        device.resume(world.now_ms)
    world.finish(within_ms=300_000)
    world.check()


def pair() -> tuple[Link, Link]:
    """Two links that are up and have nothing to say."""
    a, b = Link(1), Link(2)
    a.open(0)
    b.open(0)
    carry(a, b)
    assert [type(event) for link in (a, b) for event in events(link)] == [LinkUp, LinkUp]
    return a, b


def carry(a: Link, b: Link, now_ms: int = 1) -> None:
    """Exchanges bytes until both are silent."""
    while data := a.data_to_send():
        b.receive_data(data, now_ms)
        a.receive_data(b.data_to_send(), now_ms)


def events(link: Link) -> list:
    found = []
    while (event := link.next_event()) is not None:
        found.append(event)
    return found


def test_link_up_names_the_peers_boot() -> None:
    a, b = Link(1), Link(0xFFFFFFFF)
    a.open(0)
    b.open(0)
    carry(a, b)
    (up,) = events(a)
    assert up.peer_boot_id == 0xFFFFFFFF


def test_peer_that_does_not_read_is_not_flooded() -> None:
    a, b = pair()
    a.send(bytes(100_000), 1)
    assert a.send_room == 0
    carry(a, b)
    taken = b.next_event()
    assert isinstance(taken, LinkData)
    assert len(taken.data) == 4096  # the receive buffer: two windows
    received = len(taken.data)
    for _ in range(100):
        carry(b, a)
        carry(a, b)
        received += sum(len(event.data) for event in events(b))
    assert received == 100_000
    assert a.send_room > 0


def test_logs_travel_beside_the_stream() -> None:
    a, b = pair()
    a.send(b"stream", 1)
    a.send_log(b"a note")
    carry(a, b)
    log, data = events(b)
    assert isinstance(log, LinkLog)
    assert (log.data, data.data) == (b"a note", b"stream")


def test_logs_wait_while_the_peer_pauses_and_a_few_are_kept() -> None:
    a, b = pair()
    b.pause(1)
    carry(b, a)
    for number in range(100):
        a.send_log(b"%d" % number)
    assert b.quiet
    assert a.data_to_send() == b""
    b.resume(2)
    carry(b, a)
    carry(a, b)
    assert [event.data for event in events(b)] == [b"%d" % number for number in range(8)]


def test_nothing_is_sent_outside_a_stream() -> None:
    link = Link(1)
    with pytest.raises(LocalProtocolError):
        link.send(b"x", 0)
    assert (link.send_room, link.next_timer_ms()) == (0, None)
    link.send_log(b"x")
    assert link.data_to_send() == b""


def test_bytes_for_a_stream_that_has_ended_go_nowhere() -> None:
    a, b = pair()
    b.open(2)
    carry(b, a)
    assert a.send_room == 0
    a.send(b"for the stream of before", 3)  # its end waits among the events
    assert [type(event) for event in events(a)] == [LinkDown, LinkUp]
    a.send(b"for this one", 3)
    carry(a, b)
    assert [event.data for event in events(b) if isinstance(event, LinkData)] == [b"for this one"]


def test_close_says_so_and_open_starts_again() -> None:
    a, b = pair()
    a.close()
    carry(a, b)
    for link, text in ((a, "closed"), (b, "the peer closed the link")):
        (down,) = events(link)
        assert isinstance(down, LinkDown)
        assert down.text == text
    assert a.next_timer_ms() is None
    b.handle_timer(10_000)
    carry(b, a)
    assert events(a) == []
    a.open(10_000)
    carry(a, b)
    assert [type(event) for link in (a, b) for event in events(link)] == [LinkUp, LinkUp]


def test_opening_never_ends_and_backs_off() -> None:
    link = Link(1)
    link.open(0)
    waits, now_ms = [], 0
    for _ in range(10):
        assert link.data_to_send()
        timer_ms = link.next_timer_ms()
        assert timer_ms is not None
        waits.append(timer_ms - now_ms)
        now_ms = timer_ms
        link.handle_timer(now_ms)
    assert waits == [50, 50, 100, 200, 400, 800, 1600, 2000, 2000, 2000]


def test_smaller_mtu_and_window_of_both_are_used() -> None:
    a, b = Link(1, mtu=64), Link(2, window=2)
    a.open(0)
    b.open(0)
    carry(a, b)
    events(a), events(b)
    b.send(bytes(1000), 1)
    line = b"".join(iter(b.data_to_send, b""))
    frames = [frame for frame in FrameDecoder(1024).feed(line) if frame.type == INFO]
    assert [len(frame.payload) for frame in frames] == [64, 64]


def test_other_version_of_the_link_is_reported_once() -> None:
    link = Link(1)
    link.open(0)
    plain = bytes((7 << 5 | SABM, 0, 0, 0)) + bytes(HANDSHAKE_BYTES)
    foreign = b"\0" + stuff(plain + crc32(plain).to_bytes(4, "big")) + b"\0"
    for _ in range(3):
        link.receive_data(foreign, 1)
    (down,) = events(link)
    assert isinstance(down, LinkDown)
    assert "version 7" in down.text


def test_peer_that_speaks_a_newer_version_too_is_met_in_ours() -> None:
    link = Link(1)
    link.open(0)
    (own,) = FrameDecoder(256).feed(link.data_to_send())
    newer = pack(">6s6sHBB", b"\0\0\0\x02\0\1", own.payload[:6], 256, 8, 3) + b"what version 3 adds"
    link.receive_data(encode_frame(SABM, 0, 0, 4096, newer), 1)
    (up,) = events(link)
    assert up.peer_boot_id == 2


def fresh_starts(link: Link, count: int) -> list[bytes]:
    """Returns SABMs that each begin a new stream: their sender has guessed each token of the link."""
    (own,) = FrameDecoder(256).feed(link.data_to_send())
    boot_id, era = unpack(">IH", own.payload[:6])
    payloads = (pack(">IHIHHBB", 7, 1 + n, boot_id, era + n, 256, 8, 1) for n in range(count))
    return [encode_frame(SABM, 0, 0, 4096, payload) for payload in payloads]


def test_answers_that_the_line_does_not_take_do_not_pile_up() -> None:
    link = Link(1)
    link.open(0)
    for start in fresh_starts(link, 1000):
        link.receive_data(start, 1)
        events(link)
    answers = FrameDecoder(256).feed(link.data_to_send())
    assert [frame.type for frame in answers] == [UA]
    assert unpack(">H", answers[0].payload[4:6]) == (1000,)  # the last one: it is for the stream that there is now


@pytest.mark.parametrize("flood", ["streams", "versions", "ends"])
def test_events_that_the_application_does_not_take_do_not_pile_up(flood: str) -> None:
    link = Link(1)
    link.open(0)
    starts = fresh_starts(link, 1000)
    ends = [encode_frame(DISC, 0, 0, 4096, pack(">IH", 7, 1 + n)) for n in range(1000)]
    versions = (bytes(((2 + n % 2) << 5 | SABM, 0, 0, 0)) + bytes(HANDSHAKE_BYTES) for n in range(1000))
    floods = {
        "streams": starts,
        "ends": [start + end for start, end in zip(starts, ends, strict=True)],
        "versions": [b"\0" + stuff(plain + crc32(plain).to_bytes(4, "big")) + b"\0" for plain in versions],
    }
    link.receive_data(b"".join(floods[flood]), 1)
    assert len(events(link)) <= 12
    other = Link(2)
    other.open(2)
    for now_ms in range(2, 10):  # a start that was not heard is repeated
        other.handle_timer(1000 * now_ms)
        carry(other, link, 1000 * now_ms)
        carry(link, other, 1000 * now_ms)
        events(link), events(other)
    other.send(b"still alive", 10_000)
    carry(other, link, 10_000)
    assert [event.data for event in events(link)] == [b"still alive"]


def test_noise_neither_raises_nor_reaches_the_application(seed: int) -> None:
    dice = Dice(seed)
    a, b = pair()
    samples = [
        encode_frame(kind, dice.roll(256), dice.roll(256), 4096, bytes(dice.roll(20)))
        for kind in [SABM, UA, INFO, RR, RNR] * 8
    ]
    for _ in range(3_000):
        corrupt = bytearray(samples[dice.roll(len(samples))])
        for _ in range(1 + dice.roll(4)):
            corrupt[1 + dice.roll(len(corrupt) - 2)] ^= 1 + dice.roll(255)
        b.receive_data(corrupt + bytes([dice.roll(256) for _ in range(dice.roll(80))]), 1)
    b.receive_data(b"\0", 1)
    a.send(b"still alive", 1)
    carry(a, b)
    a.handle_timer(a.next_timer_ms() or 0)
    carry(a, b)
    assert [event.data for event in events(b)] == [b"still alive"]


def test_frames_with_impossible_numbers_change_nothing(seed: int) -> None:
    dice = Dice(seed)
    a, b = pair()
    a.send(b"x" * 100, 1)
    a.data_to_send()
    for _ in range(2_000):
        kind = dice.roll(6)
        payload = bytes([dice.roll(256) for _ in range(dice.roll(3))])
        if kind in (SABM, UA):
            payload = bytes([dice.roll(2) * dice.roll(256) for _ in range(HANDSHAKE_BYTES - 1)])
        a.receive_data(encode_frame(kind, dice.roll(256), 200 + dice.roll(50), 0, payload), 1)
        a.data_to_send()
    assert [type(event) for event in events(a) if not isinstance(event, LinkData)] == []
    for now_ms in (10_000, 20_000):
        a.handle_timer(now_ms)
        carry(a, b, now_ms)
    assert [event.data for event in events(b)] == [b"x" * 100]


def test_bytes_of_an_earlier_stream_that_wait_on_the_line_are_not_taken() -> None:
    a, b = Link(1), Link(2)
    a.open(0)
    b.open(0)
    b.receive_data(a.data_to_send(), 1)
    waiting = b.data_to_send()  # SABM and UA
    a.receive_data(waiting, 1)
    b.receive_data(a.data_to_send(), 1)
    events(b)
    b.send(b"for the side that is gone", 1)
    waiting += b.data_to_send()
    restarted = Link(3)
    restarted.open(2)
    restarted.receive_data(waiting, 2)
    assert events(restarted) == []
    carry(restarted, b)
    events(b)
    b.send(b"for the new one", 3)
    carry(b, restarted)
    assert [event.data for event in events(restarted) if isinstance(event, LinkData)] == [b"for the new one"]


def test_bytes_that_arrived_are_seen_before_the_end_of_their_stream() -> None:
    a, b = pair()
    a.send(b"last words", 1)
    carry(a, b)
    a.open(2)
    carry(a, b)
    data, down, up = events(b)
    assert (data.data, down.text, up.peer_boot_id) == (b"last words", "the peer started afresh", 1)
