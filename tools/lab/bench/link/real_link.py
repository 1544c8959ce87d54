"""The serial link between real processes: the firmware's port on MicroPython, the gateway's listener on CPython.

Between them lies a pair of pseudo-terminals that carries bytes at the pace of a serial line, in real time.
"""

import asyncio
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tools.lab.micropython import MicroPython
from tools.lab.sim.virtual_line import Dice
from tools.lab.testing.process import Process, python
from tools.lab.testing.serial_line import PacedLine

PROGRAM = "tools.lab.bench.link.device"
BARE_BYTES = 20_000
FAULT_S = 1.0


class Host(Process):
    """The gateway's end of the line, a process that can be stopped and continued."""

    def arrivals(self) -> list[tuple[float, int]]:
        """Pairs of a moment and how many bytes of the stream had arrived by then."""
        found = (re.fullmatch(r"([\d.]+) (\d+)", line) for line in self.lines)  # the other lines are the listener's log
        return [(float(match[1]), int(match[2])) for match in found if match]

    def starts(self) -> int:
        return self.lines.count("up")


class Ends:
    """Both processes and the cable between them."""

    def __init__(self, cable: PacedLine, device: Process, host: Host) -> None:
        self.cable = cable
        self.device = device
        self.host = host

    async def arrived(self, total: int, deadline_s: float = 120.0) -> None:
        await asyncio.to_thread(self.host.says, f" {total}", deadline_s)


@asynccontextmanager
async def running(
    vm: MicroPython, dice: Dice, baud: int, up_bytes: int, down_bytes: int = 0, erases: int = 0, corrupt: int = 0
) -> AsyncIterator[Ends]:
    """Measures while the device sends `up_bytes` and the host `down_bytes`."""
    with tempfile.TemporaryDirectory(prefix="holdfast-link-") as folder:
        cable = PacedLine(dice, baud, corrupt)
        cable.open()
        device_argv = [*vm.argv, "-m", PROGRAM, cable.near, *map(str, (baud, up_bytes, down_bytes, erases))]
        device = Process("device", device_argv, Path(folder, "device.log"), vm.environment())
        host_argv = python("tools.lab.bench.link.host", cable.far, str(baud), str(down_bytes))
        host = Host("host", host_argv, Path(folder, "host.log"))
        try:
            host.start()
            device.start()
            yield Ends(cable, device, host)
        finally:
            device.kill()
            host.kill()
            cable.close()


async def bare_bytes_per_s(baud: int) -> float:
    """Measures the rate of the cable itself, without the link."""
    cable = PacedLine(Dice(1), baud)
    cable.open()
    near, far = (os.open(path, os.O_RDWR | os.O_NOCTTY) for path in (cable.near, cable.far))
    os.set_blocking(near, False)
    arrivals: list[tuple[float, int]] = []
    written = arrived = 0
    try:
        while arrived < BARE_BYTES:
            if written < BARE_BYTES and written - arrived < 1024:
                written += os.write(near, bytes(512))
            await _readable(far)
            arrived += len(os.read(far, 4096))
            arrivals.append((time.monotonic(), arrived))
        return _rate(arrivals)
    finally:
        os.close(near)
        os.close(far)
        cable.close()


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    await ready.wait()
    loop.remove_reader(descriptor)


def _rate(arrivals: list[tuple[float, int]]) -> float:
    (first_s, first), (last_s, last) = arrivals[0], arrivals[-1]
    return (last - first) / (last_s - first_s)


async def share(vm: MicroPython, seed: int, baud: int, size: int, corrupt: int, bare: float) -> float:
    """Returns the share of the cable's rate `bare` that the stream from the device gets."""
    async with running(vm, Dice(seed), baud, size, corrupt=corrupt) as ends:
        await ends.arrived(size)
        return _rate(ends.host.arrivals()) / bare


async def erase(vm: MicroPython, seed: int, baud: int, size: int, erases: int) -> dict[str, int]:
    """Measures erases of the device's flash, 400 ms each, while both sides send `size` bytes."""
    async with running(vm, Dice(seed), baud, size, size, erases) as ends:
        await ends.arrived(size)
        await asyncio.to_thread(ends.device.says, f"received {size}")
        return {**(await _erases(ends.device, erases)), "restarts": ends.host.starts() - 1}


async def _erases(device: Process, erases: int) -> dict[str, int]:
    device.kill()
    lines = device.lines
    numbers = [list(map(int, line.split()[1:])) for line in lines if line.startswith("erase")]
    return {
        "erases": len(numbers),
        "quiet_after_ms": max(quiet_ms for quiet_ms, _ in numbers),
        "line_bytes_lost": sum(lost for _, lost in numbers),
    }


async def resync_ms(vm: MicroPython, seed: int, baud: int, noise: bool, faults: int) -> int:
    """The longest wait for data once noise, or a cable that was out, is over."""
    size = int(baud / 10 * (faults + 1) * 1.5)
    mended: list[float] = []
    async with running(vm, Dice(seed), baud, size) as ends:
        await asyncio.to_thread(ends.host.says, "flowing")
        for _ in range(faults):
            await _fault(ends.cable, noise)
            mended.append(time.monotonic())
            await asyncio.sleep(FAULT_S / 2)
        await ends.arrived(size)
        arrivals = ends.host.arrivals()
    waits_s = [next(at for at, _ in arrivals if at > moment) - moment for moment in mended]
    return round(1000 * max(waits_s))


async def _fault(cable: PacedLine, noise: bool) -> None:
    cable.noisy, cable.unplugged = noise, not noise
    await asyncio.sleep(FAULT_S)
    cable.noisy = cable.unplugged = False


async def stall(vm: MicroPython, seed: int, baud: int, stall_s: float) -> dict[str, float]:
    """Measures a pause of the host's process while the device sends."""
    size = 20_000
    async with running(vm, Dice(seed), baud, size, size) as ends:
        await asyncio.to_thread(ends.host.says, "flowing")
        ends.host.freeze()
        await asyncio.sleep(stall_s)
        ends.host.thaw()
        await ends.arrived(size)
        await asyncio.to_thread(ends.device.says, f"received {size}")
        return {"stall_s": stall_s, "restarts": ends.host.starts() - 1}
