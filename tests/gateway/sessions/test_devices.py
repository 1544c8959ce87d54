"""The device registry: its file names the clients that were here, in a running gateway, after its end and a kill."""

from pathlib import Path

import pytest

from gateway.sessions import devices
from gateway.sessions.devices import FILE, TABLE, Device, devices_in
from gateway.store.sqlite.quarantine import notes_in
from gateway.store.sqlite.shelf import Shelf
from tests.gateway.support import Client, connected, running, tcp_port, until
from wire.codec.packets import MQTT_3_1_1, Puback
from wire.properties import USER_PROPERTY
from wire.reasons import NOT_AUTHORIZED


@pytest.fixture
def written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "WRITE_DELAY_S", 0.0)


def device_in(folder: Path, client_id: str) -> Device:
    return devices_in(folder)[client_id]


async def test_the_file_of_a_gateway_that_has_ended_names_the_clients_that_were_here(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        first = await connected(broker, "first sensor")
        await connected(broker, "old", protocol_level=MQTT_3_1_1)
        await connected(broker, "", clean_start=True)  # no client has that name again
        await first.publish("a", properties={USER_PROPERTY: [("hf-id", "0000002a/7/first sensor")]})
    found = devices_in(tmp_path)
    assert sorted(found) == ["first sensor", "old"]
    one = found["first sensor"]
    assert (one.user, one.address, one.level, one.connected) == (None, "127.0.0.1", 5, False)
    assert (one.origin, one.epoch) == ("first sensor", 42)
    assert one.first_seen_ms <= one.last_seen_ms
    assert (found["old"].level, found["old"].origin) == (4, "")


async def test_it_is_noted_when_a_device_last_sent_a_message_that_was_taken(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("allow * publish a\nallow * subscribe #\n")
    async with running(tmp_path / "store", acl=str(tmp_path / "rules")) as broker:
        heard = broker.services.shared.devices.heard
        sensor = await connected(broker, "sensor")
        assert heard["sensor"].at_ms == 0
        sensor.send("forbidden", qos=1)
        assert (await sensor.expect(Puback)).reason_code == NOT_AUTHORIZED
        assert heard["sensor"].at_ms == 0
        times = []
        for qos in (1, 1, 1, 0, 2):  # the first one takes the slow way, the next ones the fast way
            heard["sensor"].at_ms = 0
            sensor.send("a", qos=qos)
            await until(lambda: heard["sensor"].at_ms > 0, "it is noted")
            times.append(heard["sensor"].at_ms)
        assert times == sorted(times)
        await connected(broker, "", clean_start=True)
        assert list(heard) == ["sensor"]


@pytest.mark.usefixtures("written_at_once")
async def test_the_file_of_a_running_gateway_names_the_connected_clients(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await Client().connect(tcp_port(broker))
        await until(lambda: "client" in devices_in(tmp_path), "the new device is written")
        first = device_in(tmp_path, "client")
        assert first.connected
        await client.disconnect()
        await until(lambda: not device_in(tmp_path, "client").connected, "its end is written")
        await Client().connect(tcp_port(broker))
        await until(lambda: device_in(tmp_path, "client").connected, "its return is written")
        again = device_in(tmp_path, "client")
        assert again.first_seen_ms == first.first_seen_ms < again.last_seen_ms


@pytest.mark.usefixtures("written_at_once")
async def test_no_client_is_connected_to_a_gateway_that_starts_after_a_kill(tmp_path: Path) -> None:
    file = Shelf(tmp_path / FILE, TABLE)
    file.change({"killed": Device("user", "192.0.2.1", 4, 1, 2, connected=True)})
    file.close()
    async with running(tmp_path):
        await until(lambda: not device_in(tmp_path, "killed").connected, "it is known to be gone")
    assert device_in(tmp_path, "killed") == Device("user", "192.0.2.1", 4, 1, 2, connected=False)


async def test_messages_and_many_connections_write_nothing_for_themselves(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        for _ in range(3):
            client = await Client().connect(tcp_port(broker))
            for number in range(20):
                await client.publish("a", properties={USER_PROPERTY: [("hf-id", f"0000002a/{number}/client")]})
            await client.disconnect()
        assert devices_in(tmp_path) == {}, "what changes within half a minute is written together"
    assert list(devices_in(tmp_path)) == ["client"]


async def test_the_clients_not_seen_for_the_longest_time_are_forgotten_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "DEVICES_MAX", 2)
    async with running(tmp_path) as broker:
        await connected(broker, "stays connected")
        for name in ("a", "b"):
            await (await connected(broker, name)).disconnect()
    assert sorted(devices_in(tmp_path)) == ["b", "stays connected"]
    async with running(tmp_path) as broker:
        await connected(broker, "b")
        await connected(broker, "c")
    assert sorted(devices_in(tmp_path)) == ["b", "c"]


async def test_a_registry_that_cannot_be_read_is_set_aside_and_the_gateway_starts(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database at all, but long enough to look" * 100)
    async with running(tmp_path) as broker:
        await Client().connect(tcp_port(broker))
    assert list(devices_in(tmp_path)) == ["client"]
    (note,) = notes_in(tmp_path)
    assert note.file == FILE
    assert (tmp_path / note.kept).read_bytes().startswith(b"no database")
