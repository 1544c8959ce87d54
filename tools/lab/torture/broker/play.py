"""Plays one session of the storm against a broker, and reports the broker's faults."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from tools.lab.testing.lines import Line
from tools.lab.torture.broker.oracle import Ear, Expected, Heard, expect, faults
from tools.lab.torture.broker.packets import FLOOD_SIZE, Pools
from tools.lab.torture.broker.session import StormSession
from wire.codec.packets import Disconnect, Packet, Pingreq, Puback, Pubcomp, Publish, Pubrec, Pubrel, encode
from wire.reasons import UNSPECIFIED_ERROR

DEADLINE_S = 180.0  # long, because the broker serves many other sessions
DEAF_S = 0.3
OPENING_BYTES = 300  # a slow client sends this number of bytes one by one
Open = Callable[[StormSession], Awaitable[Line]]


class Play:
    """One session on its line; `pools` has the packets of its floods."""

    def __init__(self, session: StormSession, pools: Pools) -> None:
        self.packets_sent = 0
        self._session = session
        self._floods = pools.floods
        self._expected: Expected = expect(session.bytes)
        self._heard = Heard()
        self._ear = Ear(self._heard, self._expected.level, self._expected.maximum_packet_size)
        self._asked: list[Packet] = []
        self._news = asyncio.Event()
        self._is_over = False

    async def run(self, open_line: Open) -> list[str]:
        """Returns sentences about the broker's faults."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                line = await open_line(self._session)
        except OSError as error:
            return [f"no line: {error!r}"]
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await self._play(line)
        except TimeoutError:
            late = faults(self._expected, self._heard, False, self._session.is_shared)
            return late or [f"nothing came for {DEADLINE_S:g} s"]
        finally:
            line.close()

    async def _play(self, line: Line) -> list[str]:
        manner = self._session.manner
        if manner == "deaf":
            with contextlib.suppress(OSError):  # TimeoutError is one
                async with asyncio.timeout(DEAF_S):
                    await self._send(line)
                    await self._until(lambda: False)  # reads nothing until the time is over
            return []
        reading = asyncio.create_task(self._read(line))
        try:
            if manner == "half-open":
                return await self._stay_half_open(line)
            with contextlib.suppress(OSError):
                await self._send(line)
                if manner in ("cut", "noise"):
                    return []
                await self._go_on(line)
            await self._until(lambda: False)
            return faults(self._expected, self._heard, self._is_over, self._session.is_shared)
        finally:
            reading.cancel()

    async def _stay_half_open(self, line: Line) -> list[str]:
        connect = self._session.packets[0]
        with contextlib.suppress(OSError):
            await line.write(connect[: self._session.number % (len(connect) or 1)] or b"\x10")
        await self._until(lambda: False)
        return ["the broker accepted a CONNECT that is not whole"] if self._heard.connack == 0 else []

    async def _send(self, line: Line) -> None:
        session = self._session
        connect, rest = session.packets[0], b"".join(session.packets[1:])
        if session.floods:
            await line.write(connect)
            self.packets_sent += 1
            await self._until(lambda: self._heard.connack is not None)
            if not self._heard.session_present:
                for qos in session.floods:
                    await self._flood(line, qos)
            self._heard.answers.clear()
            self._asked.clear()  # the floods answer their PUBRECs themselves
        else:
            rest = connect + rest
        if session.manner == "cut":
            rest = rest[: session.number * 7919 % (len(rest) or 1)]
        self.packets_sent += len(session.packets) - bool(session.floods)
        await self._write(line, rest)

    async def _write(self, line: Line, data: bytes) -> None:
        step = {"pieces": 1 + self._session.number % 97, "slow": 1}.get(self._session.manner, len(data) or 1)
        if step == 1:
            for at in range(min(len(data), OPENING_BYTES)):
                await line.write(data[at : at + 1])
                await asyncio.sleep(0)
            data, step = data[OPENING_BYTES:], len(data) or 1
        for at in range(0, len(data), step):
            await line.write(data[at : at + step])

    async def _flood(self, line: Line, qos: int) -> None:
        """Sends messages that take the fast path, and waits for their last acknowledgements."""
        answers = self._heard.answers
        answers.clear()
        await line.write(self._floods[self._expected.level][qos])
        self.packets_sent += FLOOD_SIZE
        await self._until(lambda: len(answers) >= FLOOD_SIZE)
        if qos == 2 and not self._is_over:
            await line.write(b"".join(b"\x62\x02" + number.to_bytes(2, "big") for number in range(1, FLOOD_SIZE + 1)))
            self.packets_sent += FLOOD_SIZE
            await self._until(lambda: len(answers) >= 2 * FLOOD_SIZE)

    async def _go_on(self, line: Line) -> None:
        """Ends a connection that stays open: answers like an ordinary client, waits for all answers, disconnects."""
        expected, heard, level = self._expected, self._heard, self._expected.level
        if expected.closes:
            return None
        due = not (expected.logs_in or expected.depends or self._session.is_shared)
        await self._until(lambda: heard.connack is not None)
        while not self._is_over:
            asked, self._asked = self._asked, []
            answers = b"".join(encode(answer, level) for packet in asked if (answer := _answer_to(packet)))
            if answers and expected.is_whole:
                await line.write(answers)
                self.packets_sent += len(asked)
            if not (due and not heard.session_present and expected.answers - heard.answers):
                break
            await self._change()
        if not expected.is_whole:
            return line.close()
        self.packets_sent += 2
        return await line.write(encode(Pingreq(), level) + encode(Disconnect(), level))

    async def _read(self, line: Line) -> None:
        with contextlib.suppress(OSError):
            while not self._heard.nonsense and (data := await line.read()):
                self._asked += self._ear.hear(data)
                self._news.set()
        self._is_over = True
        self._news.set()

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Waits for the condition, or for the end of the connection."""
        while not self._is_over and not condition():
            await self._change()

    async def _change(self) -> None:
        self._news.clear()
        await self._news.wait()


def _answer_to(packet: Packet) -> Packet | None:
    if isinstance(packet, Publish) and packet.packet_identifier is not None:
        return Puback(packet.packet_identifier) if packet.qos == 1 else Pubrec(packet.packet_identifier)
    if isinstance(packet, Pubrec) and packet.reason_code < UNSPECIFIED_ERROR:
        return Pubrel(packet.packet_identifier)
    return Pubcomp(packet.packet_identifier) if isinstance(packet, Pubrel) else None
