"""What an edge node of Sparkplug B publishes: births before all else, then data. It does no IO.

The specification is Sparkplug 3.0. A device has its birth (DBIRTH) behind that of the node (NBIRTH), before its data
(DDATA), and again when it has a metric that the birth did not name. Each of these messages has the next `seq`, from
0 at the NBIRTH to 255 and then from 0 again. A host that misses one asks for all births again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from gateway.routes import Message
from host.readings import Measured, measured_in
from host.sparkplug import BOOLEAN, INT64, STRING
from uplink.foreign.headers import identity_of
from uplink.foreign.sparkplug.payload import REBIRTH, Metric, Value, datatype_of, encode
from uplink.foreign.transport import Parcel

DEVICES_MAX = 1_000
METRICS_MAX = 64  # of a device
UNIT_CHARACTERS_MAX = 16
LATE_MS = 60_000
NAME_CHARACTERS_MAX = 256  # of a device's name, and of a metric's
TYPE_CHANGES_MAX = 16  # of a device's metrics, each of which costs a birth; then one that changes is a text for good
_HASH_DIGITS = 32
_SEQ_COUNT = 256
_RESERVED = "%/+#"  # the last three mean something in topics, and the first begins an escape


class Publish(NamedTuple):
    """A message to publish at QoS 0 and without RETAIN [section 6.4]."""

    topic: str
    payload: bytes


@dataclass(slots=True)
class _Device:
    metrics: dict[str, Metric] = field(default_factory=dict)  # what is newest of each
    heard_ms: int = 0  # by the monotonic clock
    is_born: bool = False
    type_changes: int = 0


class EdgeNode:
    """The edge node, over all connections of its route.

    Args:
        group: the Group ID.
        name: the Edge Node ID.
        gateway_name: the gateway's name.
        silent_ms: after how long without a message a device is told to be dead.
    """

    def __init__(self, group: str, name: str, gateway_name: str, silent_ms: int) -> None:
        self.commands = f"spBv1.0/{group}/NCMD/{name}"
        self._group = group
        self._name = name
        self._gateway_name = gateway_name
        self._silent_ms = silent_ms
        self._devices: dict[str, _Device] = {}  # the one that has been silent longest is the first
        self._bd_seq = -1
        self._seq = 0
        self._began_ms = 0

    def parcel(self, message: Message, _hop: str) -> Parcel:
        """Returns a message as `data` takes it."""
        is_ours = message.received_by in ("", self._gateway_name)
        device = message.publisher if is_ours else message.origin  # it came over a link, from many devices
        headers = {"device": device, "accepted": str(message.received_ms)}
        return Parcel(message.topic, headers, message.payload, identity_of(message))

    def next_death(self, now_ms: int) -> Publish:
        """Returns the death (NDEATH) that is the will of the next connection, whose bdSeq is one more [section 6.4.6].

        now_ms: Unix time.
        """
        self._bd_seq = (self._bd_seq + 1) % _SEQ_COUNT
        self._began_ms = now_ms
        return self.death(now_ms)

    def death(self, now_ms: int) -> Publish:
        """Returns the death of this connection. It has to be published before the node itself ends the connection."""
        return Publish(self._topic("NDEATH"), encode(now_ms, None, [self._bd_seq_metric(now_ms)]))

    def birth(self, now_ms: int) -> Publish:
        """Returns the birth of the node. All devices need a birth from then on."""
        for device in self._devices.values():
            device.is_born = False
        self._seq = -1
        metrics = [self._bd_seq_metric(now_ms), Metric(REBIRTH, BOOLEAN, False, now_ms)]
        return self._next("NBIRTH", "", now_ms, metrics)

    def births(self, now_ms: int) -> Iterator[Publish]:
        """Yields the births of the devices that have none."""
        for name in list(self._devices):
            if (device := self._devices.get(name)) is not None and not device.is_born:
                yield self._birth_of(name, device, now_ms)

    def deaths(self, now_ms: int, steady_ms: int) -> Iterator[Publish]:
        """Yields the deaths (DDEATH) of devices that have been silent for too long, and forgets them.

        now_ms: Unix time. steady_ms: the time of the monotonic clock.
        """
        while self._devices:
            name, device = next(iter(self._devices.items()))
            if steady_ms - device.heard_ms < self._silent_ms:
                return
            yield from self._forget(name, now_ms)

    def data(self, parcel: Parcel, now_ms: int, steady_ms: int) -> Iterator[Publish]:
        """Yields what a message becomes: its values as data, and births before them. Nothing if it has no values.

        now_ms: Unix time. steady_ms: the time of the monotonic clock.
        """
        accepted_ms = int(parcel.headers["accepted"])
        self._began_ms = min(self._began_ms, now_ms)  # the clock may have been set back
        base, measured = measured_in(parcel.payload, accepted_ms)
        name = _cut(parcel.headers["device"] or base.rstrip(":/") or self._name)
        if not measured:
            return
        device = self._devices.pop(name, None)
        if device is None:
            if len(self._devices) >= DEVICES_MAX:
                yield from self._forget(next(iter(self._devices)), now_ms)
            device = _Device()
        device.heard_ms = steady_ms
        self._devices[name] = device
        if metrics := list(self._note(device, parcel.name, measured, accepted_ms, now_ms)):
            if not device.is_born:
                yield self._birth_of(name, device, now_ms)
            yield self._next("DDATA", name, now_ms, metrics)

    def _note(
        self, device: _Device, topic: str, measured: list[Measured], accepted_ms: int, now_ms: int
    ) -> Iterator[Metric]:
        for one in measured:
            name = _cut("/".join(filter(None, (topic, one.name))))
            known = device.metrics.get(name)
            if known is None and len(device.metrics) >= METRICS_MAX:
                continue
            datatype = _type_for(device, known, one.value)
            measured_ms = one.measured_ms if one.measured_ms <= now_ms + LATE_MS else accepted_ms
            newest_ms = known.measured_ms if known is not None and known.value is not None else 0
            if newest_ms > now_ms + LATE_MS:  # by the clock before it was set back
                newest_ms = 0
            is_historical = accepted_ms < self._began_ms or measured_ms < max(newest_ms, now_ms - LATE_MS)
            if known is None or known.datatype != datatype:
                device.is_born = False
                known = Metric(name, datatype, None, measured_ms, one.unit[:UNIT_CHARACTERS_MAX])
            if not is_historical:
                known = known._replace(value=one.value, measured_ms=measured_ms)
            device.metrics[name] = known
            yield Metric(name, datatype, one.value, measured_ms, is_historical=is_historical)

    def _birth_of(self, name: str, device: _Device, now_ms: int) -> Publish:
        device.is_born = True
        return self._next("DBIRTH", name, now_ms, list(device.metrics.values()))

    def _forget(self, name: str, now_ms: int) -> Iterator[Publish]:
        if self._devices.pop(name).is_born:
            yield self._next("DDEATH", name, now_ms, [])

    def _next(self, kind: str, device: str, now_ms: int, metrics: list[Metric]) -> Publish:
        self._seq = (self._seq + 1) % _SEQ_COUNT
        return Publish(self._topic(kind, device), encode(now_ms, self._seq, metrics))

    def _topic(self, kind: str, device: str = "") -> str:
        return "/".join(filter(None, ("spBv1.0", self._group, kind, self._name, escaped(device))))

    def _bd_seq_metric(self, now_ms: int) -> Metric:
        return Metric("bdSeq", INT64, self._bd_seq, now_ms)


def _type_for(device: _Device, known: Metric | None, value: Value) -> int:
    """Returns the type in which a value goes, and counts it if the metric of the device has another one until now."""
    datatype = datatype_of(value)
    if known is None or known.datatype == datatype:
        return datatype
    if known.datatype == INT64 and isinstance(value, int) and not isinstance(value, bool):
        return INT64
    if device.type_changes >= TYPE_CHANGES_MAX:
        return STRING
    device.type_changes += 1
    return datatype


def _cut(name: str) -> str:
    """Returns a name of at most NAME_CHARACTERS_MAX, whose end is a hash where it was longer."""
    if len(name) <= NAME_CHARACTERS_MAX:
        return name
    return name[: NAME_CHARACTERS_MAX - _HASH_DIGITS] + sha256(name.encode()).hexdigest()[:_HASH_DIGITS]


def escaped(name: str) -> str:
    """Returns a name as one level of a topic; what may not be there is escaped as in a URL."""
    return "".join(
        one if one.isprintable() and one not in _RESERVED else "".join(f"%{octet:02X}" for octet in one.encode())
        for one in name
    )
