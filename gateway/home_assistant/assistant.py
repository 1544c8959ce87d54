"""Publishes the newest values of devices for Home Assistant, and one retained document for each device.

A consumer of the log takes what devices publish from the start on. It is not durable, so nothing waits for it.
A value is published only if it was measured within the last LATE_S: what waited before it came, at a device or here,
is no state. What was measured before a value that was published already is passed over too.
"""

import asyncio
import logging
import sqlite3
import time
from dataclasses import dataclass, field

from gateway.config.home_assistant import HomeAssistantConfig
from gateway.home_assistant.discovery import DISCOVERY_TOPIC, STATE_TOPIC, Component, document, id_of, key_of
from gateway.log_fields import about
from gateway.loop.pace import Slice
from gateway.message import Message
from gateway.sessions.offers import Offers
from gateway.sessions.publishing import Publishing
from gateway.store import Feed, MessageLog
from host.readings import Measured, Value, measured_in
from host.release import release

CONSUMER = "home-assistant"
DEVICES_MAX = 1_000
VALUES_MAX = 32  # of a device
LATE_S = 60
RETRY_S = 5.0

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Device:
    components: dict[str, Component] = field(default_factory=dict)
    newest_ms: dict[str, int] = field(default_factory=dict)
    heard_ms: int = 0


class HomeAssistant:
    """Runs from ``open`` to ``close``.

    Args:
        config: the settings.
        gateway: the gateway's name.
        log: the message log of the default stream.
        publishing: takes the documents.
        offers: gives the values to their subscribers.
    """

    def __init__(
        self, config: HomeAssistantConfig, gateway: str, log: MessageLog, publishing: Publishing, offers: Offers
    ) -> None:
        self._config, self._gateway, self._log = config, gateway, log
        self._publishing, self._offers = publishing, offers
        self._devices: dict[str, _Device] = {}  # the one that has been silent longest is the first
        self._has_complained = False

    def open(self) -> None:
        """Begins with what is published from now on."""
        self._feed = Feed(self._log, CONSUMER, self._config.topics)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Ends; values that wait are not published."""
        self._task.cancel()
        await asyncio.wait([self._task])
        self._feed.close()

    async def _run(self) -> None:
        while True:
            try:
                await self._take_all()
            except sqlite3.Error as error:
                logger.warning("values for Home Assistant cannot be read", extra=about(reason=str(error)))
            except Exception:
                logger.exception("Home Assistant: unexpected failure, it begins again")
            await asyncio.sleep(RETRY_S)

    async def _take_all(self) -> None:
        slice_ = Slice()
        while True:
            while messages := await self._feed.take():
                for message in messages:
                    self.show(message, int(time.time() * 1000))
                    if slice_.is_over:
                        await slice_.give_way()
            await self._feed.wait()

    def show(self, message: Message, now_ms: int) -> None:
        """Publishes the values of a message, at a Unix time in ms, that are newer than what was published before."""
        if message.received_by != self._gateway or message.topic.startswith("homeassistant/"):
            return  # of another gateway, or of the gateway itself
        base, found = measured_in(message.payload, message.received_ms)
        name = message.publisher or base.rstrip(":/")  # connectors name the device in the pack
        if not name:
            return
        device_id = f"{id_of(self._gateway)}-{id_of(name)}"
        states: dict[str, tuple[Measured, Component]] = {}
        for one in found:
            measured_ms = one.measured_ms
            if measured_ms > now_ms + LATE_S * 1000:  # by a clock that is wrong
                measured_ms = message.received_ms
            kind = _kind_of(one.value)
            key = key_of(message.topic, one.name, kind)
            if measured_ms < now_ms - LATE_S * 1000 or (key in states and measured_ms < states[key][0].measured_ms):
                continue
            component = Component(key, one.name or message.topic, one.unit, kind)
            states[key] = one._replace(measured_ms=measured_ms), component
        if states and (device := self._device(device_id, now_ms)) is not None:
            self._publish(device_id, name, device, states, now_ms)

    def _device(self, device_id: str, now_ms: int) -> _Device | None:
        device = self._devices.pop(device_id, None)
        if device is None:
            if len(self._devices) >= DEVICES_MAX and not self._forget_one(now_ms):
                if not self._has_complained:
                    logger.warning("more devices than Home Assistant is shown", extra=about(limit=str(DEVICES_MAX)))
                self._has_complained = True
                return None
            device = _Device()
        device.heard_ms = now_ms
        self._devices[device_id] = device
        return device

    def _forget_one(self, now_ms: int) -> bool:
        """Forgets the device that has been silent longest, if its values are unavailable."""
        device_id, device = next(iter(self._devices.items()))
        if now_ms - device.heard_ms < self._config.expire_after_s * 1000:
            return False
        del self._devices[device_id]
        self._publishing.withdraw(DISCOVERY_TOPIC.format(device_id))
        return True

    def _publish(
        self,
        device_id: str,
        name: str,
        device: _Device,
        states: dict[str, tuple[Measured, Component]],
        now_ms: int,
    ) -> None:
        before = len(device.components)
        for key, (_, component) in states.items():
            if len(device.components) < VALUES_MAX:
                device.components.setdefault(key, component)
        if len(device.components) > before:
            components = list(device.components.values())
            payload = document(device_id, name, components, release(), self._config.expire_after_s)
            self._publishing.announce(Message(DISCOVERY_TOPIC.format(device_id), payload, 0, retain=True))
        for key, (one, _) in states.items():
            newest_ms = device.newest_ms.get(key, 0)
            if newest_ms > now_ms + LATE_S * 1000:  # by the clock before it was set back
                newest_ms = 0
            if key not in device.components or one.measured_ms < newest_ms:
                continue
            device.newest_ms[key] = one.measured_ms
            self._offers.offer(Message(STATE_TOPIC.format(device_id, key), _text_of(one.value).encode(), 0))


def _kind_of(value: Value) -> type[Value]:
    return type(value) if isinstance(value, bool | str) else float


def _text_of(value: Value) -> str:
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    return str(value)
