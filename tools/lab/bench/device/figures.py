"""The figures that `holdfast lab bench device` prints."""

import asyncio
import subprocess
import time
from pathlib import Path
from typing import Any

from flash_store.devices.file import FileFlash
from flash_store.errors import StoreFull
from flash_store.log import Log
from tools.cli.device import build
from tools.lab.bench.device.frozen import build_frozen, has_tls
from tools.lab.bench.device.run import SECTOR_BYTES, SECTORS, Board
from tools.lab.micropython import MicroPython

BAR_KIB = 64  # of a 32-bit board, for this device executed in place; with TLS twice as much
FROZEN_BAR_KIB = 80  # of the same device frozen into its MicroPython, with a full store
FROM_MPY_BAR_KIB = 120  # of the same device copied as `.mpy` files, with a full store
HEAP_MAX_KW = 512
READINGS = 900  # in some 50 messages
BACKLOG = 2700
COMMANDS = "bench/commands"
FULL = ", full store"  # of small messages, which the device finds at its start and sends
SMALL_TOPIC, SMALL_PAYLOAD = "telemetry/garage", b'[{"n":"adc.voltage","v":1.5125,"u":"V","bt":1795348180.250}]'


class Bench:
    """Measures in `folder`, which has `ca.der`, with the broker at `port`, and at `tls_port` with TLS.

    Args:
        vm: the MicroPython on which times are measured.
        vm_32_bit: the MicroPython on which heaps are measured; None: `vm`.
        source: MicroPython's source tree, to build one with the firmware frozen into it; None: frozen is not measured.
    """

    def __init__(
        self,
        folder: Path,
        port: int,
        tls_port: int,
        vm: MicroPython,
        vm_32_bit: MicroPython | None,
        source: Path | None = None,
    ) -> None:
        self._folder = folder
        self._port = port
        self._tls_port = tls_port
        self._vm = vm
        self._bits, self._heap_vm = (64, vm) if vm_32_bit is None else (32, vm_32_bit)
        self._source = source
        self._firmware = folder / "firmware"
        self._runs = 0
        self._image = folder / build.IMAGE
        build.build_board(build.Board.UNIX, self._firmware)
        self._image.write_bytes(build.make_image(build.Board.UNIX))

    def measure(self) -> dict[str, Any]:
        """Measures everything, which takes some minutes. Raises FrozenUnavailable."""
        forms: dict[str, tuple[MicroPython, Path | None]] = {
            "in_place": (self._heap_vm, self._image),
            "from_mpy": (self._heap_vm, self._firmware / build.LIB),
        }
        if self._source is not None:
            manifest = self._firmware / build.FROZEN / "manifest.py"
            forms["frozen"] = build_frozen(self._source, manifest, self._folder), None
        heaps = {form: self._least_heaps_kib(form, *of) for form, of in forms.items()}
        return {"least_heap_kib": heaps, "bits": self._bits, **self._measure_the_rest((1, 2))}

    def measure_quickly(self) -> dict[str, Any]:
        """Measures the least heap of one device executed in place, and the figures at QoS 1."""
        heap = {"qos 1": self._least_heap_kib(self._heap_vm, self._image, "qos 1")}
        return {"least_heap_kib": {"in_place": heap}, "bits": self._bits, **self._measure_the_rest((1,))}

    def _least_heaps_kib(self, form: str, vm: MicroPython, firmware: Path | None) -> dict[str, int]:
        names = [name for name in self._devices() if form != "frozen" or "tls" not in name or self._has_frozen_tls()]
        return {name: self._least_heap_kib(vm, firmware, name) for name in names}

    def _has_frozen_tls(self) -> bool:
        return self._source is not None and has_tls(self._source)

    def _least_heap_kib(self, vm: MicroPython, firmware: Path | None, name: str) -> int:
        bits = 32 if firmware is None else self._bits
        return asyncio.run(self._least_heap_kw(vm, firmware, name)) * bits // 32

    def _measure_the_rest(self, levels: tuple[int, ...]) -> dict[str, Any]:
        """Measures the traffic at these QoS levels, and the start of the VM."""
        report: dict[str, Any] = {f"qos {qos}": asyncio.run(self._traffic(qos)) for qos in levels}
        report["bare_start_ms"] = self._bare_start_ms()
        return report

    def _devices(self) -> dict[str, dict[str, Any]]:
        """Returns the keys in which the measured configurations differ."""
        tls = {"kind": "tls", "server_name": "localhost", "ca": str(self._folder / "ca.der")}
        return {
            "qos 1": {"qos": 1},
            "qos 2": {"qos": 2},
            "qos 2, commands": {"qos": 2, "commands": COMMANDS},
            "qos 2, tls": {"qos": 2, "port": tls},
            f"qos 2{FULL}": {"qos": 2},
            f"qos 2, commands{FULL}": {"qos": 2, "commands": COMMANDS},
            f"qos 2, tls{FULL}": {"qos": 2, "port": tls},
            f"qos 2, tls, commands{FULL}": {"qos": 2, "port": tls, "commands": COMMANDS},
        }

    async def _least_heap_kw(self, vm: MicroPython, firmware: Path | None, name: str) -> int:
        """Returns the least heap in units of 1024 words. The flash file exists, as making it takes more heap."""
        board = self._board(firmware, **self._devices()[name])
        await board.run(vm, HEAP_MAX_KW, 1)
        is_full = name.endswith(FULL)
        fails, runs = 0, HEAP_MAX_KW
        while runs - fails > 1:
            middle = (fails + runs) // 2
            if is_full:
                fill(board.flash)
            if await board.run(vm, middle, board.made() + (1 if is_full else READINGS)) is None:
                fails = middle
            else:
                runs = middle
        return runs

    async def _traffic(self, qos: int) -> dict[str, Any]:
        """Measures a device that has stored messages without a broker and then sends them all."""
        board = self._board(self._firmware / build.LIB, qos=qos)
        await board.run(self._vm, HEAP_MAX_KW, BACKLOG, is_online=False)
        started = time.monotonic()
        traffic = await board.run(self._vm, HEAP_MAX_KW, BACKLOG)
        assert traffic is not None and traffic.first_publish is not None
        messages, readings = board.messages(), board.made()
        return {
            "reset_to_first_publish_ms": round(1000 * (traffic.first_publish - started), 1),
            "messages": messages,
            "readings": readings,
            "messages_per_s": round(messages / (traffic.last - traffic.first_publish)),
            "bytes_per_reading_up": round(traffic.up / readings, 1),
            "bytes_per_reading_down": round(traffic.down / readings, 1),
            "bytes_per_message_up": round(traffic.up / messages, 1),
        }

    def _bare_start_ms(self) -> float:
        """Returns the time from the start of a VM without a program to its end."""
        started = time.monotonic()
        subprocess.run([*self._vm.argv, "-c", "pass"], check=True, timeout=60)
        return round(1000 * (time.monotonic() - started), 1)

    def _board(self, firmware: Path | None, **keys: Any) -> Board:
        self._runs += 1
        folder = self._folder / f"run-{self._runs}"
        folder.mkdir()
        port = self._tls_port if keys.get("port") else self._port
        return Board(folder, firmware, port, client_id=f"bench-{self._runs}", **keys)


def fill(flash: Path) -> int:
    """Fills a device's flash file with small messages until no more fit; returns how many.

    They are messages of a device with one sensor: 76 bytes of topic and payload.
    """
    log = Log(FileFlash(str(flash), SECTOR_BYTES, SECTORS))
    count = 0
    try:
        while True:
            log.append(SMALL_TOPIC, SMALL_PAYLOAD, 2)
            count += 1
    except StoreFull:
        return count
    finally:
        log.flush()
