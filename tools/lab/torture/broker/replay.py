"""Plays one session of the storm alone against a gateway, and finds the smallest part of it that still fails."""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tools.lab.testing.lines import Line, Lines, SerialEnd
from tools.lab.torture.broker.gateway import StormedGateway
from tools.lab.torture.broker.packets import Pools
from tools.lab.torture.broker.play import Play
from tools.lab.torture.broker.run import cables, clean
from tools.lab.torture.broker.session import StormSession, draw

Say = Callable[[str], None]


async def replay(folder: Path, seed: int, number: int, say: Say) -> list[str]:
    """Plays one session of a storm against a gateway in an empty folder; returns the gateway's faults. Passes the
    packets of the smallest session that still fails to `say`. Raises ProcessFailed if the gateway does not start."""
    async with cables(folder, 1) as (near, far):
        gateway = StormedGateway(folder, near)
        await gateway.up()
        stage = _Stage(gateway, far[0], Pools(seed))
        try:
            session = draw(stage.pools, seed, number)
            found = await stage.play(session)
            if found:
                smallest = await _minimised(stage, session)
                floods = f", behind floods of QoS {smallest.floods}" if smallest.floods else ""
                say(f"over {smallest.line}, {smallest.manner}{floods}:")
                for packet in smallest.packets:
                    say(f"  {packet.hex()}")
        finally:
            stage.close()
            await gateway.down()
        return found + gateway.complaints()


class _Stage:
    """A gateway on which sessions are played one after the other."""

    def __init__(self, gateway: StormedGateway, serial: str, pools: Pools) -> None:
        self.pools = pools
        self._gateway = gateway
        self._lines = Lines(gateway.ways)
        self._serial = SerialEnd(serial, 1)

    async def play(self, session: StormSession) -> list[str]:
        found = await Play(session, self.pools).run(self._open)
        if not self._gateway.running:
            return [*found, "the gateway's process has ended"]
        await clean(self._gateway)
        return found

    async def _open(self, session: StormSession) -> Line:
        if session.line == "serial":
            return await self._serial.open()
        return await self._lines.open(session.line, is_raw=session.manner == "noise")

    def close(self) -> None:
        self._serial.unplug()


async def _minimised(stage: _Stage, session: StormSession) -> StormSession:
    """Returns the session with only the packets that the failure needs; it tries to leave out large pieces first."""
    plain = replace(session, floods=[], manner="whole")
    smallest = plain if await stage.play(plain) else session
    size = len(smallest.packets) // 2
    while size:
        first = 1
        while first < len(smallest.packets):
            packets = smallest.packets[:first] + smallest.packets[first + size :]
            smaller = replace(smallest, packets=packets)
            with contextlib.suppress(OSError):
                if await stage.play(smaller):
                    smallest = smaller
                    continue
            first += size
        size //= 2
    return smallest
