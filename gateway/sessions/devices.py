"""The device registry: every client that has logged in with a client identifier of its own, for the operator.

Nothing depends on it. It is written seldom and without a sync, so that it hardly wears an SD card.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from gateway.errors import StoreError
from gateway.store import disk, quarantine, shelf

FILE, TABLE = "devices.sqlite", "device"
DEVICES_MAX = 10_000  # the device that was away for longest is forgotten first
WRITE_DELAY_S = 30.0  # the changes of this time are written together

Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)


class Device(msgspec.Struct):
    """One client.

    ``user`` is its user, None without an account. ``address`` is its IP address, or the name of a serial line.
    ``level`` is its protocol level. ``first_seen_ms`` and ``last_seen_ms`` (unix times) say when its first connection
    began, and when its last one began or, unless it is ``connected``, ended. ``origin`` and ``epoch`` are those of a
    message that it has published lately.
    """

    user: str | None
    address: str
    level: int
    first_seen_ms: int
    last_seen_ms: int
    connected: bool
    origin: str = ""
    epoch: int = 0


class Heard:
    """When a client last sent a message that was taken; nothing of it is written.

    ``at_ms`` is a Unix time, 0 if none has come since the gateway's start.
    """

    __slots__ = ("at_ms",)

    def __init__(self) -> None:
        self.at_ms = 0


class Devices:
    """The devices by client identifier, in the order in which they were last seen.

    Args:
        folder: the folder of the file.

    ``heard`` says of each device that was here since the start when it last sent a message.
    """

    def __init__(self, folder: Path) -> None:
        self.heard: dict[str, Heard] = {}
        self._folder = folder
        self._devices: dict[str, Device] = {}
        self._changed: set[str] = set()
        self._shelf: shelf.Shelf
        self._next: asyncio.TimerHandle | None = None
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._said = ""

    async def open(self) -> None:
        """Loads the stored devices, of which none is connected; a damaged file is put aside. Raises StoreError."""
        try:
            self._devices = await _in_thread(self._load)
        except sqlite3.Error as error:
            raise StoreError(f"device registry {self._folder / FILE}: {disk.words_of(error, self._folder)}") from error
        for client_id, device in self._devices.items():
            if device.connected:  # the process was killed
                device.connected = False
                self._change(client_id)

    async def close(self) -> None:
        """Writes the changes that are not written yet."""
        await self._write()
        if self._next is not None:
            self._next.cancel()
        await _in_thread(self._shelf.close)

    def all(self) -> Mapping[str, Device]:
        """Returns all devices by client identifier; they change while the event loop runs."""
        return self._devices

    def note_connected(self, client_id: str, user: str | None, address: str, level: int) -> Heard:
        """Notes that a client has logged in; returns where it is noted when it sends messages."""
        now_ms = int(time.time() * 1000)
        device = self._devices.pop(client_id, None)
        if device is None:
            device = Device(user, address, level, now_ms, now_ms, True)
        device.user, device.address, device.level = user, address, level
        device.last_seen_ms, device.connected = now_ms, True
        self._devices[client_id] = device
        heard = self.heard.setdefault(client_id, Heard())
        if len(self._devices) > DEVICES_MAX:
            self._forget_one()
        self._change(client_id)
        return heard

    def note_identity(self, client_id: str, origin: str, epoch: int) -> None:
        """Notes the identity of a message that a client has sent."""
        device = self._devices.get(client_id)
        if device is not None and (device.origin, device.epoch) != (origin, epoch):
            device.origin, device.epoch = origin, epoch
            self._change(client_id)

    def note_disconnected(self, client_id: str) -> None:
        """Notes that a client's connection has ended."""
        device = self._devices.pop(client_id, None)
        if device is not None:
            self._devices[client_id] = device
            device.last_seen_ms, device.connected = int(time.time() * 1000), False
            self._change(client_id)

    def _forget_one(self) -> None:
        away = (client_id for client_id, device in self._devices.items() if not device.connected)
        client_id = next(away, next(iter(self._devices)))
        del self._devices[client_id]
        self.heard.pop(client_id, None)
        self._change(client_id)

    def _change(self, client_id: str) -> None:
        self._changed.add(client_id)
        if self._next is None:
            self._next = asyncio.get_running_loop().call_later(WRITE_DELAY_S, self._begin_to_write)

    def _begin_to_write(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        async with self._writing:
            if self._next is not None:
                self._next.cancel()
                self._next = None
            changed, self._changed = self._changed, set()
            kept = {name: replace(self._devices[name]) for name in changed if name in self._devices}  # for the thread
            try:
                await _in_thread(lambda: self._shelf.change(kept, changed - kept.keys()))
                self._said = ""
            except sqlite3.Error as error:
                if str(error) != self._said:
                    logger.error("device registry: it could not be written, attempts go on: %s", error)
                self._said = str(error)
                for name in changed:
                    self._change(name)

    def _load(self) -> dict[str, Device]:
        path = self._folder / FILE
        if away := quarantine.begin_anew_if_damaged(path, TABLE):
            quarantine.set_aside(self._folder, [quarantine.Note(FILE, "the whole file", "it cannot be read", away)])
            logger.error("device registry: it cannot be read and begins anew; what was there is in %s", away)
        devices = devices_in(self._folder)
        self._shelf = shelf.Shelf(path, TABLE, is_synced=False)
        return dict(sorted(devices.items(), key=lambda item: item[1].last_seen_ms))


def devices_in(folder: Path) -> dict[str, Device]:
    """Returns the devices in the file without its corrupt rows; writes nothing. Raises sqlite3.Error."""
    entries = shelf.read(folder / FILE, TABLE, Device)
    return {entry.key: entry.value for entry in entries if entry.value is not None}


async def _in_thread(function: Callable[[], Answer]) -> Answer:
    return await asyncio.get_running_loop().run_in_executor(None, function)
