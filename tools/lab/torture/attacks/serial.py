"""Attacks by a device at a serial port, which is a pseudo-terminal: it takes bytes as fast as a program writes them."""

import asyncio
import contextlib
import itertools
import os
import tty
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from struct import pack, unpack

from tools.lab.torture.attacks.line import PIECE
from tools.lab.torture.attacks.peer import Peer
from wire.codec.packets import MQTT_5, Pingreq, encode
from wire.link import Link, LinkUp
from wire.link.frames import INFO, POLL, RR, SABM, UI, FrameDecoder, encode_frame

PORT = "/dev/shm/holdfast-attack-{other}"
HANDSHAKE = ">IHIHHBB"
NOISE_S = 0.001


@asynccontextmanager
async def _line(other: int) -> AsyncIterator[int]:
    """Plugs a serial port in, and yields the device's end."""
    master, slave = os.openpty()
    tty.setraw(slave)
    os.set_blocking(master, False)
    path = Path(PORT.format(other=other))
    path.unlink(missing_ok=True)
    path.symlink_to(os.ttyname(slave))
    try:
        yield master
    finally:
        path.unlink()
        os.close(master)
        os.close(slave)


async def _write(descriptor: int, data: bytes) -> None:
    """Writes bytes as fast as the gateway reads them."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            await asyncio.sleep(NOISE_S)


async def _read(descriptor: int) -> bytes:
    while True:
        with contextlib.suppress(BlockingIOError):
            return os.read(descriptor, PIECE)
        await asyncio.sleep(NOISE_S)


async def _token_of_gateway(descriptor: int) -> tuple[int, int]:
    """Returns the boot and the era that the gateway's first SABM has."""
    decoder = FrameDecoder(1024)
    while True:
        for frame in decoder.feed(await _read(descriptor)):
            if frame.type == SABM:
                boot_id, era = unpack(">IH", frame.payload[:6])
                return boot_id, era


def _starts(boot_id: int, era: int) -> Iterator[bytes]:
    for number in itertools.count():
        token = 7, number & 0xFFFF, boot_id, (era + number) & 0xFFFF
        yield encode_frame(SABM, 0, 0, 4096, pack(HANDSHAKE, *token, 256, 8, 1))


async def serial_starts(port: int, other: int) -> None:
    """Streams that begin again and again, with guessed tokens; the device reads no answer."""
    async with _line(other) as line:
        starts = _starts(*await _token_of_gateway(line))
        while True:
            await _write(line, b"".join(itertools.islice(starts, 1000)))


async def serial_logs(port: int, other: int) -> None:
    """Log lines of a device, and frames of other versions of the link."""
    lines = encode_frame(UI, 0, 0, 0, b"\xff" * 256)
    versions = (encode_frame((one << 5) ^ (1 << 5) | UI, 0, 0, 0) for one in (2, 3))
    async with _line(other) as line:
        while True:
            await _write(line, (lines + b"".join(versions)) * 100)


async def serial_noise(port: int, other: int) -> None:
    """Bytes that are nearly frames: blocks of COBS of one byte each, and a wrong checksum."""
    async with _line(other) as line:
        while True:
            await _write(line, b"\0" + (b"\1" * 270 + b"\0") * 200)


async def _in_stream(other: int, more: Callable[[int], bytes]) -> None:
    """Opens a stream as a device does, and then writes what ``more`` returns for each number."""
    async with _line(other) as line:
        link = Link(7)
        link.open(0)
        is_up = False
        while not is_up:
            await _write(line, link.data_to_send())
            link.receive_data(await _read(line), 1)
            while (event := link.next_event()) is not None:
                is_up = is_up or isinstance(event, LinkUp)
        await _write(line, link.data_to_send())
        for number in itertools.count():
            with contextlib.suppress(BlockingIOError):
                os.read(line, PIECE)
            await _write(line, more(number))


async def serial_polls(port: int, other: int) -> None:
    """The smallest frames, each of which asks for an answer."""
    await _in_stream(other, lambda number: b"".join(encode_frame(RR | POLL, n, 0, 4096) for n in range(250)))


async def serial_fragments(port: int, other: int) -> None:
    """Frames with one byte of MQTT each, out of order."""
    packet = encode(Pingreq(), MQTT_5)

    def frames(number: int) -> bytes:
        order = (number * 8 + n ^ 1 for n in range(8))
        return b"".join(encode_frame(INFO, n & 0xFF, 0, 4096, packet[n % 2 : n % 2 + 1]) for n in order)

    await _in_stream(other, frames)


_LISTENS = '[[listener]]\nkind = "serial"\ndevice = "' + PORT + '"\n'
ATTACKS = tuple(
    Peer(attack, _LISTENS) for attack in (serial_starts, serial_logs, serial_noise, serial_polls, serial_fragments)
)
