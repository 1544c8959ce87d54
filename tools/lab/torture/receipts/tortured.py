"""A site with devices, of which even the gateway may lose its store."""

import asyncio
import shutil
from pathlib import Path

from tools.lab.micropython import MicroPython
from tools.lab.torture.receipts.devices import DEVICE_QOS, KeepingDevice
from tools.lab.torture.receipts.site import GATEWAY, JOB, Identity, ReceiptsSite

COMPLETE_S = 300.0
LOOK_S = 0.01


class TorturedSite(ReceiptsSite):
    """A site whose run ends when all is in the tables.

    Args:
        vm: what runs the devices.
        job_waits: whether a fault starts the job for the first time.

    Attributes:
        devices: they sample from their start on, whatever publishers do.
        gone: the messages of publishers that the gateway had acknowledged when it lost its store, and that were not in
            the tables then. They do not come again, for a publisher that is no device keeps none.
    """

    def __init__(self, vm: MicroPython, folder: Path, messages: int, job_waits: bool = False) -> None:
        super().__init__(folder, messages)
        self.devices = [KeepingDevice(vm, folder, name, self.gateway.port) for name in DEVICE_QOS]
        self.processes |= {one.name: one.process for one in self.devices}
        self.origins |= set(DEVICE_QOS)
        self.gone: set[Identity] = set()
        if job_waits:
            self.away.add(JOB)

    def accepted(self) -> set[Identity]:
        """The messages that the gateway has acknowledged to publishers and that are not gone, and all that devices have
        stored."""
        return (super().accepted() - self.gone).union(*(one.stored() for one in self.devices))

    async def lose_gateway_store(self) -> None:
        """Kills the gateway, and removes its store; `gone` says then what went with it. It stays away until `back`."""
        await self.stop(self.gateway, "the gateway")
        shutil.rmtree(self.folder / GATEWAY / "store")
        while any(one.is_expecting for one in self.publishers):  # what it has sent is still read
            await asyncio.sleep(LOOK_S)
        self.gone |= super().accepted() - (await asyncio.to_thread(self.in_tables)).keys()

    async def drained(self) -> None:
        for device in self.devices:
            await self.stop(device.process, device.name)
            device.stop_sampling()
            await self.back(device.process, device.name)
        if not await self.until(self.is_complete, COMPLETE_S):
            self.violations.append(f"the tables are not complete {COMPLETE_S:g} s after the last fault")
