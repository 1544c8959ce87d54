"""Devices on the real MicroPython that keep each message until a receipt, and the cuts of their power."""

import asyncio
import json
import random
from pathlib import Path

from tools.lab.journal import read_journal
from tools.lab.micropython import MicroPython
from tools.lab.testing.process import Process
from tools.lab.torture.device.life import live, powered_command
from tools.lab.torture.publisher import TOPIC

DEVICE_QOS = {"board-1": 1, "board-2": 2, "board-3": 2}
SAMPLING_INTERVAL_MS = 200
FLASH_SECTORS = 128  # some 1,500 messages, of five minutes
LAST_OPERATION_MAX = 40  # of the flash, in a life that one of them ends
LIFE_S = 2.0  # at most, of such a life


class KeepingDevice:
    """A device with `"until": "receipt"` at a gateway, which samples from its start on.

    Its flash has room for all that it makes while receipts are late. So it holds whatever none has settled.

    Args:
        folder: where its files are.
        port: of the gateway.

    Attributes:
        process: the device; its start after a kill is one on the same flash.
    """

    def __init__(self, vm: MicroPython, folder: Path, name: str, port: int) -> None:
        self.name = name
        self._vm = vm
        self._config, self._journal = folder / f"{name}.json", folder / f"{name}.journal"
        self._log = folder / f"{name}.log"
        self._keys = {
            "client_id": name,
            "topic": f"{TOPIC}/{name}",
            "port": {"kind": "tcp", "host": "127.0.0.1", "port": port},
            "flash": {"path": str(folder / f"{name}.flash"), "sector_count": FLASH_SECTORS},
            "qos": DEVICE_QOS[name],
            "until": "receipt",
            "interval_ms": SAMPLING_INTERVAL_MS,
            "clock": "none",
            "sensors": ["host"],
            "readings_limit": 0,
            "journal": str(self._journal),
        }
        self._configure()
        self.process = self._powered()

    def stored(self) -> set[tuple[str, int, int]]:
        """The identities of the messages that it has stored, each durable when it is counted here."""
        return {(self.name, one.epoch, one.seq) for one in read_journal(self.name, self._journal)}

    def stop_sampling(self) -> None:
        """Lets it make no more readings from its next start on: it only sends."""
        self._keys["readings_limit"] = sum(one.readings for one in read_journal(self.name, self._journal)) or 1
        self._configure()

    async def die_in_flash(self, chance: random.Random) -> str | None:
        """Starts it, and cuts its power in one of its first flash operations, which is then partly done. Returns a
        sentence if it ends in another way."""
        last = chance.randrange(1, LAST_OPERATION_MAX)
        return await live(self._powered(last, chance.getrandbits(30)), asyncio.sleep(LIFE_S))

    def _configure(self) -> None:
        self._config.write_text(json.dumps(self._keys))

    def _powered(self, last: int = 0, seed: int = 0) -> Process:
        argv = powered_command(self._vm, self._config, last, seed)
        return Process(self.name, argv, self._log, self._vm.environment(), ready="boot")
