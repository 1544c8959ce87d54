"""A connector whose device speaks by itself: lines of text, or sentences of NMEA 0183."""

import time
from typing import Any

from gateway.config.connectors import LineConfig, NmeaConfig, device_of
from gateway.connectors.keeping import Keeper, Pack
from gateway.connectors.line import LineReader, fill
from gateway.connectors.nmea import NmeaReader
from gateway.connectors.reading import Reading, Unreadable
from gateway.connectors.splitter import LineSplitter
from gateway.connectors.wire import READ_MOST, Wire, far_end
from gateway.counters import ConnectorState, ConnectorUnit

STEP_S = 0.5  # of silence behind which a byte begins a line
MARK_S = 60.0  # between two marks of a line that is silent
ERROR = "line.error"
SERIAL_LATENCY_MS, TCP_LATENCY_MS = 200, 2000  # that bytes are on their way before they can be read, at most


class Listening:
    """Reads one line for ever.

    Args:
        config: the connector.
        keeper: stores what it says.
    """

    def __init__(self, config: LineConfig | NmeaConfig, keeper: Keeper) -> None:
        self._config = config
        self._keeper = keeper
        self._device = device_of(config)
        self._topic = fill(config.topic, {"device": self._device})
        self._source = keeper.source(config.name, self._device, self._topic)
        self._far = far_end(config)
        self._codec = _codec_of(config)
        self._counts = ConnectorUnit(self._device)

    @property
    def state(self) -> ConnectorState:
        """How it is doing now."""
        self._counts.gaps = self._source.gaps
        return ConnectorState(self._config.name, self._far.problem or self._keeper.problem, [self._counts])

    async def run(self) -> None:
        """Runs until it is cancelled."""
        await self._far.keep_open(self.read)

    async def read(self, wire: Wire) -> None:
        """Reads an open line until it is gone. Raises OSError then."""
        separator = self._config.separator.encode() if isinstance(self._config, LineConfig) else b"\n"
        splitter = LineSplitter(separator, self._config.longest)
        latency_ms = SERIAL_LATENCY_MS if wire.character_s else TCP_LATENCY_MS
        self._source.is_behind = True
        from_ms: int | None = None  # from when on no line was missed that is not added yet
        clear_ms = added_ms = 0  # up to when all that came is in packs, and was at the last add
        before_ms = 0  # when the look before this one was
        quiet_s = STEP_S
        while True:
            data = await wire.read(quiet_s)
            looked_ms, now_ms, quiet_s = wire.looked_ms - latency_ms, int(time.time() * 1000), MARK_S
            if not data and from_ms is None:
                splitter.begin()
            packs = self._packs(splitter, data, now_ms)
            if splitter.is_inside and from_ms is None:
                continue  # still within a line that began before
            if from_ms is None:
                from_ms = clear_ms = now_ms + 1  # the next whole millisecond, so that a gap is never too short
            if len(data) < READ_MOST:  # else more may wait
                if splitter.is_between:
                    clear_ms = looked_ms
                elif packs:  # the part of a line that waits has come since the look before
                    clear_ms = before_ms or clear_ms
                before_ms = looked_ms
            if packs or not data or self._source.is_behind or abs(clear_ms - added_ms) > 1000 * MARK_S:
                self._keeper.add(self._source, packs, from_ms, clear_ms)
                from_ms, added_ms = now_ms, clear_ms

    def _packs(self, splitter: LineSplitter, data: bytes, now_ms: int) -> list[Pack]:
        if not data:
            return []
        self._far.note_heard()
        overlong = splitter.overlong
        found = [self._pack(line.removesuffix(b"\r"), now_ms) for line in splitter.feed(data)]
        packs = [pack for pack in found if pack is not None]
        if splitter.overlong > overlong:
            packs.append(self._error(f"a line of more than {self._config.longest} bytes", now_ms))
        return packs

    def _pack(self, line: bytes, now_ms: int) -> Pack | None:
        if not line:
            return None
        self._counts.polls += 1
        try:
            if isinstance(self._codec, NmeaReader):
                readings = self._codec.read(line)
                return Pack(self._topic, self._device, now_ms, readings) if readings else None
            found = self._codec.read(line)
        except Unreadable as error:
            return self._error(str(error), now_ms)
        if not found.fits:
            self._counts.errors += 1
        return Pack(found.topic, found.device, now_ms, found.readings) if found.readings else None

    def _error(self, what: str, now_ms: int) -> Pack:
        self._counts.errors += 1
        return Pack(self._topic, self._device, now_ms, [Reading(ERROR, what)])


def _codec_of(config: LineConfig | NmeaConfig) -> Any:
    if isinstance(config, NmeaConfig):
        needs = config.checksum == "required"
        return NmeaReader(needs_checksum=needs, talkers=config.talkers, kinds=config.sentences)
    return LineReader(device_of(config), config.topic, config.rule)
