"""What can be no message waits for the quarantine within a bound of bytes, and is acknowledged when it is there."""

from pathlib import Path

import pytest

from gateway.store import quarantine
from uplink.foreign.aside import BYTES_MOST, ROOM_BYTES, Aside
from uplink.foreign.transport import Arrival, Parcel

MIB = 1 << 20


def arrival(place: str, size: int, acknowledged: list[str]) -> Arrival:
    return Arrival(Parcel("a", {}, bytes(size)), place, lambda: acknowledged.append(place))


def room(aside: Aside) -> bool:
    return aside.has_room


async def test_more_may_come_only_when_most_of_it_is_written(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    aside = Aside(tmp_path, "route r", pytest.fail)
    places = range(ROOM_BYTES // MIB)
    for place in places:
        assert room(aside)
        aside.put(arrival(f"place {place}", MIB, acknowledged), "no topic")
        assert acknowledged == []
    assert not room(aside)
    await aside.settle()
    assert room(aside)
    assert acknowledged == [note.what for note in quarantine.notes_in(tmp_path)]
    assert acknowledged == [f"place {place}" for place in places]


async def test_beyond_the_bound_the_connection_ends_and_the_rest_is_not_acknowledged(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    faults: list[str] = []
    aside = Aside(tmp_path, "route r", faults.append)
    places = range(BYTES_MOST // MIB)
    for place in (*places, "beyond"):
        aside.put(arrival(f"place {place}", MIB, acknowledged), "no topic")
    await aside.settle()
    assert faults == ["16777216 bytes wait for the quarantine"]
    assert acknowledged == [f"place {place}" for place in places]
    assert len(quarantine.notes_in(tmp_path)) == len(places)


async def test_what_cannot_be_written_is_not_acknowledged_and_makes_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    acknowledged: list[str] = []
    aside = Aside(tmp_path / "away", "route r", pytest.fail)
    aside.put(arrival("place", ROOM_BYTES, acknowledged), "no topic")
    await aside.settle()
    assert (acknowledged, aside.has_room) == ([], True)
    assert "route r: 1 messages cannot be set aside" in caplog.text
