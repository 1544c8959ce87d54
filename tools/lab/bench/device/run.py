"""Runs the compiled firmware on a real MicroPython with a limited heap and with a file as its flash."""

import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.cli.flash.reader import read_store
from tools.cli.flash.store import NoStore
from tools.lab.journal import read_journal
from tools.lab.micropython import MicroPython
from tools.lab.testing.network_link import NetworkLink
from tools.lab.testing.process import Process, ProcessFailed

SECTOR_BYTES, SECTORS = 4096, 64
IN_PLACE = Path(__file__).with_name("in_place.py")
STUCK_S = 900.0  # longer than any run takes on a busy machine
OUT_OF_MEMORY = ("MemoryError", "memory allocation")  # in what the VM prints then; it may be cut
LOOK_S = 0.2  # each look reads the whole store
SHOWN_LINES = 5
SENSORS = [{"kind": "host", "name": name} for name in ("one", "two", "three")]


@dataclass
class Traffic:
    """The bytes on the device's line; times are of `time.monotonic`."""

    up: int = 0
    down: int = 0
    first_publish: float | None = None
    last: float = 0.0

    def hear(self, connection: object, from_device: bool, data: bytes) -> None:
        self.last = time.monotonic()
        if from_device:
            self.up += len(data)
            if self.first_publish is None and self.up > len(data):  # its first bytes are the CONNECT
                self.first_publish = self.last
        else:
            self.down += len(data)


class Board:
    """A device in `folder`, whose flash and journal stay from one run to the next. `firmware` is a folder of compiled
    modules or a ROMFS image; None if the modules are frozen into the VM."""

    def __init__(self, folder: Path, firmware: Path | None, broker_port: int, **keys: Any) -> None:
        self.flash, self._journal = folder / "flash.bin", folder / "journal"
        self._config, self._output = folder / "device.json", folder / "device.log"
        self._firmware = firmware
        self._broker_port = broker_port
        self._keys = {
            "topic": "bench/device",
            "flash": {"path": str(self.flash), "sector_count": SECTORS},
            "interval_ms": 5,
            "clock": "none",
            "sensors": SENSORS,
            "journal": str(self._journal),
            "port": {"kind": "tcp"},
            **keys,
        }

    async def run(
        self, vm: MicroPython, heap_kw: int, readings: int, is_online: bool = True, stuck_s: float = STUCK_S
    ) -> Traffic | None:
        """Runs until the device has made `readings` in all and sent its messages; returns None if the VM says that its
        heap is too small. How long it takes tells nothing of the heap: the machine may be busy.

        Args:
            heap_kw: the heap in units of 1024 words.
            stuck_s: seconds after which a device that goes on without an end is a fault.

        Raises:
            ProcessFailed: the device ends for another reason, or does not end.
        """
        traffic = Traffic()
        link = NetworkLink("127.0.0.1", self._broker_port, traffic.hear)
        port = await link.open()
        if not is_online:
            await link.cut()
        self._keys["port"] = {**self._keys["port"], "host": "127.0.0.1", "port": port}
        self._config.write_text(json.dumps({**self._keys, "readings_limit": readings}))
        argv = [*vm.argv, "-X", f"heapsize={heap_kw}wk", *self._program()]
        path = ".frozen" if self._firmware is None else f"{self._firmware}:.frozen"
        process = Process("device", argv, self._output, {"MICROPYPATH": path})
        process.start()
        try:
            async with asyncio.timeout(stuck_s):
                while not self._is_done(readings, is_online):
                    has_ended = not process.running
                    if has_ended:
                        await asyncio.to_thread(process.ended)  # all that it has printed is read
                    if any(text in line for line in process.lines for text in OUT_OF_MEMORY):
                        return None
                    if has_ended:
                        raise ProcessFailed(f"the device has ended: {' / '.join(process.lines[-SHOWN_LINES:])}")
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise ProcessFailed(f"the device has made {self.made()} of {readings} readings in {stuck_s:g} s") from None
        finally:
            process.kill()
            await link.cut()
        return traffic

    def made(self) -> int:
        """Returns how many readings the device has made."""
        return sum(one.readings for one in read_journal("", self._journal))

    def messages(self) -> int:
        return len(list(read_journal("", self._journal)))

    def _program(self) -> list[str]:
        if self._firmware is not None and self._firmware.is_file():
            return [str(IN_PLACE), str(self._firmware), str(self._config)]
        # First on the path is the working folder, which may be a checkout.
        program = f"import sys; sys.path.pop(0); import device.main; device.main.main({str(self._config)!r})"
        return ["-c", program]

    def _is_done(self, readings: int, is_online: bool) -> bool:
        if self.made() < readings:
            return False
        try:
            return not is_online or not read_store(self.flash.read_bytes(), SECTOR_BYTES).messages
        except (NoStore, OSError):
            return False
