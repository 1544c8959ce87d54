"""Publishes the newest values of devices for Home Assistant, and one retained document for each device.

A consumer of the log takes what devices publish from the start on. It is not durable, so nothing waits for it.
A value is published only if it was measured within the last LATE_S: what waited before it came, at a device or here,
is no state. What was measured before a value that was published already is passed over too.
"""

import asyncio
import logging
import sqlite3
import time
from collections import deque
from dataclasses import dataclass, field

from gateway.config.home_assistant import HomeAssistantConfig
from gateway.home_assistant.discovery import DISCOVERY_TOPIC, STATE_TOPIC, Component, document, id_of, key_of
from gateway.home_assistant.readings import Measured, Value, measured_in
from gateway.log_fields import about
from gateway.loop.pace import Slice
from gateway.loop.signals import Signal
from gateway.message import Message
from gateway.sessions.offers import Offers
from gateway.sessions.publishing import Publishing
from gateway.store import Cursor, MessageLog
from host.release import release

CONSUMER = "home-assistant"
DEVICES_MAX = 1_000
VALUES_MAX = 32  # of a device
LATE_S = 60
WAITING_MAX = 1_000  # messages of QoS 0
FETCH_MOST = 100
RETRY_S = 5.0

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Device:
    components: dict[str, Component] = field(default_factory=dict)
    newest_ms: dict[str, int] = field(default_factory=dict)


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
        self._devices: dict[str, _Device] = {}
        self._has_complained = False
        self._waiting: deque[Message] = deque(maxlen=WAITING_MAX)
        self._news = Signal()

    def open(self) -> None:
        """Begins with what is published from now on."""
        self._cursor = Cursor(self._log, CONSUMER, self._config.topics, durable=False)
        self._cursor.offered = self._offer
        self._cursor.wake_with(self._news.set)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Ends; values that wait are not published."""
        self._task.cancel()
        await asyncio.wait([self._task])
        self._cursor.wake_with(None)
        self._cursor.drop()

    def _offer(self, message: Message) -> None:
        self._waiting.append(message)
        self._news.set()

    async def _run(self) -> None:
        slice_ = Slice()
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                while messages := await self._next():
                    for message in messages:
                        self.show(message, int(time.time() * 1000))
                        if slice_.is_over:
                            await slice_.give_way()
            except sqlite3.Error as error:
                logger.warning("values for Home Assistant cannot be read", extra=about(reason=str(error)))
                await asyncio.sleep(RETRY_S)
                self._news.set()

    async def _next(self) -> list[Message]:
        """Returns messages that wait. Raises sqlite3.Error."""
        if self._waiting:
            messages = list(self._waiting)
            self._waiting.clear()
            return messages
        deliveries = await self._cursor.fetch_now(FETCH_MOST)
        self._cursor.acknowledge_all([one.packet_identifier for one in deliveries])
        return [one.message for one in deliveries]

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
            key = key_of(message.topic, one.name)
            if measured_ms < now_ms - LATE_S * 1000 or (key in states and measured_ms < states[key][0].measured_ms):
                continue
            component = Component(key, one.name or message.topic, one.unit, _kind_of(one.value))
            states[key] = one._replace(measured_ms=measured_ms), component
        if states and (device := self._device(device_id)) is not None:
            self._publish(device_id, name, device, states)

    def _device(self, device_id: str) -> _Device | None:
        if device_id not in self._devices:
            if len(self._devices) >= DEVICES_MAX:
                if not self._has_complained:
                    logger.warning("more devices than Home Assistant is shown", extra=about(limit=str(DEVICES_MAX)))
                self._has_complained = True
                return None
            self._devices[device_id] = _Device()
        return self._devices[device_id]

    def _publish(
        self, device_id: str, name: str, device: _Device, states: dict[str, tuple[Measured, Component]]
    ) -> None:
        before = len(device.components)
        for key, (_, component) in states.items():
            if len(device.components) < VALUES_MAX:
                device.components.setdefault(key, component)
        if len(device.components) > before:
            components = list(device.components.values())
            payload = document(device_id, name, components, release(), self._config.expire_after_s)
            self._publishing.announce(Message(DISCOVERY_TOPIC.format(device_id), payload, 0, retain=True))
        for key, (one, component) in states.items():
            known = device.components.get(key)
            if known is None or known.kind is not component.kind or one.measured_ms < device.newest_ms.get(key, 0):
                continue
            device.newest_ms[key] = one.measured_ms
            self._offers.offer(Message(STATE_TOPIC.format(device_id, key), _text_of(one.value).encode(), 0))


def _kind_of(value: Value) -> type[Value]:
    return type(value) if isinstance(value, bool | str) else float


def _text_of(value: Value) -> str:
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    return str(value)
