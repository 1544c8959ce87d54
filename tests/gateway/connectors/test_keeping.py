"""Marks and gaps when clocks jump, and which values are stored."""

from pathlib import Path

import pytest

from gateway.connectors.keeping import DeadBands, Keeper, Pack
from gateway.connectors.reading import Reading
from tests.gateway.connectors.support import next_of
from tests.gateway.support import running, subscribed


@pytest.mark.parametrize("began_ms", [1_795_839_900_000, 5_000])
async def test_a_gap_has_its_earlier_end_first_also_where_the_clock_was_set_back(tmp_path: Path, began_ms: int) -> None:
    last_ms = 1_795_839_800_000
    async with running(tmp_path) as broker:
        services, client = broker.services, await subscribed(broker, "watcher", "#", options=0)
        keeper = Keeper(services.log, services.publishing, services.limits, "plant", "json")
        source = keeper.source("scale", "scale", "telemetry/scale")
        keeper.add(source, [Pack("telemetry/scale", "scale", last_ms, [Reading("a", 1)])], last_ms, last_ms)
        await keeper.close()
        assert await next_of(client) == {"a": 1}
    async with running(tmp_path) as broker:
        services, client = broker.services, await subscribed(broker, "watcher", "#", options=0)
        keeper = Keeper(services.log, services.publishing, services.limits, "plant", "json")
        source = keeper.source("scale", "scale", "telemetry/scale")
        assert source.told_ms == last_ms
        keeper.add(source, [], began_ms, began_ms + 1)
        await keeper.close()
        first, last = sorted((began_ms, last_ms))
        assert await next_of(client) == {"gap.from": first / 1000, "gap.to": last / 1000}


def test_a_value_is_stored_when_it_has_left_its_dead_band_or_its_time_is_over() -> None:
    bands = DeadBands({"t": (0.5, 100.0), "on": (0.0, 100.0)})

    def stored(now_s: float, **values: float | bool) -> list[str]:
        return [one.name for one in bands.chosen([Reading(name, value) for name, value in values.items()], now_s)]

    assert stored(0, t=20.0, on=True, other=1) == ["t", "on", "other"]
    assert stored(1, t=20.5, on=True, other=1) == ["other"]
    assert stored(2, t=20.6, on=False) == ["t", "on"]
    assert stored(3, t=20.2) == []
    assert stored(102, t=20.2) == ["t"]
    bands.forget()
    assert stored(103, t=20.2) == ["t"]


def test_a_value_behind_an_error_is_stored() -> None:
    bands = DeadBands({"t": (5.0, 100.0)})
    bands.chosen([Reading("t", 20.0)], 0)
    assert bands.chosen([Reading("t.error", "nan")], 1)
    assert bands.chosen([Reading("t", 20.0)], 2)
