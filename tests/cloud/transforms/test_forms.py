"""Things that are named inside the payload: series of different things are never one series."""

import json
from typing import Any

import pytest

from tests.cloud.transforms.decoding import LANDED_US, decode_one, devices, problem_of, values

LANDED_S = LANDED_US // 1_000_000


def series(topic: str, payload: Any) -> list[tuple[Any, ...]]:
    """Returns device, metric, value and the time in seconds before the landing of each record."""
    return [
        (
            one.device,
            one.metric,
            next(value for value in one[6:10] if value is not None),
            None if one.time_us is None else (LANDED_US - one.time_us) / 1e6,
        )
        for one in decode_one(topic, json.dumps(payload))
    ]


@pytest.mark.parametrize("name", ["id", "name", "tag", "n", "NodeId"])
@pytest.mark.parametrize("value", ["v", "value", "Value"])
@pytest.mark.parametrize("container", ["values", "d"])
def test_value_takes_the_name_beside_it_wherever_it_stands_in_an_array(name: str, value: str, container: str) -> None:
    first, second = {name: "temp", value: 71.5}, {name: "pressure", value: 3.2}
    both = {("line1", "temp", 71.5, None), ("line1", "pressure", 3.2, None)}
    assert set(series("line1", {container: [first, second]})) == both
    assert set(series("line1", {container: [second, first]})) == both
    assert set(series("line1", {container: [second]})) < both


def test_fields_beside_a_value_tell_its_time_unit_quality_and_device() -> None:
    items = [
        {"id": "a", "v": 1.5, "q": False, "t": LANDED_S * 1000, "unit": "bar", "device": "pump"},
        {"id": "b", "v": None, "q": True},
        {"id": "c", "v": True, "q": 192, "batch": 7},
        {"id": "d", "v": 4, "q": "unheard of"},
    ]
    records = decode_one("line1", json.dumps({"timestamp": LANDED_S - 60, "values": items}))
    found = {one.metric: one for one in records}
    assert list(found) == ["a", "c", "c.batch", "d", "d.q"]
    assert (found["a"].device, found["a"].unit, found["a"].quality) == ("pump", "bar", "bad")
    assert (found["a"].time_us, found["c"].time_us) == (LANDED_US, LANDED_US - 60_000_000)
    assert [found[name].quality for name in ("c", "c.batch", "d")] == ["good", "good", None]
    assert found["d.q"].value_string == "unheard of"


def test_same_name_in_an_array_has_a_value_for_each_time_and_none_is_lost_without() -> None:
    twice = [{"id": "a", "v": 1, "t": LANDED_S - 1}, {"id": "a", "v": 2, "t": LANDED_S}]
    assert series("x", {"values": twice}) == [("x", "a", 1.0, 1.0), ("x", "a", 2.0, 0.0)]
    untimed = {"values": [{"id": "a", "v": 1}, {"id": "a", "v": 2}]}
    assert problem_of("x", json.dumps(untimed)) == "two values have the same name"


def test_objects_with_ids_are_told_apart_by_them_and_not_by_their_places() -> None:
    first, second = {"id": "AA:01", "rssi": -60}, {"id": "AA:02", "rssi": -70}
    both = {("scan", "found.AA:01.rssi", -60.0, None), ("scan", "found.AA:02.rssi", -70.0, None)}
    assert set(series("scan", {"found": [first, second]})) == both
    assert set(series("scan", {"found": [second, first]})) == both


def test_id_that_comes_twice_tells_nothing_apart() -> None:
    assert values(decode_one("scan", '[{"id":1,"x":1},{"id":1,"x":2}]')) == {
        "0.id": 1.0,
        "0.x": 1.0,
        "1.id": 1.0,
        "1.x": 2.0,
    }


@pytest.mark.parametrize("form", ["array", "object"])
def test_values_beside_a_time_have_that_time(form: str) -> None:
    items = [{"ts": (LANDED_S - ago) * 1000, "values": {"t": 20.0 + ago, "h": {"x": 1}}} for ago in (2, 1)]
    expected = [
        ("pump", "t", 22.0, 2.0),
        ("pump", "h.x", 1.0, 2.0),
        ("pump", "t", 21.0, 1.0),
        ("pump", "h.x", 1.0, 1.0),
    ]
    if form == "array":
        assert series("pump", items) == expected
    else:
        assert series("pump", items[0]) == expected[:2]


def test_values_without_a_time_that_can_be_one_keep_their_places() -> None:
    assert series("pump", [{"ts": 5, "values": {"t": 1}}, {"ts": 6, "values": {"t": 2}}]) == [
        ("pump", "0.ts", 5.0, None),
        ("pump", "0.values.t", 1.0, None),
        ("pump", "1.ts", 6.0, None),
        ("pump", "1.values.t", 2.0, None),
    ]


def test_devices_of_one_thingsboard_topic_are_the_origins_and_those_of_a_gateway_are_its_keys() -> None:
    assert devices(decode_one("v1/devices/me/telemetry", '{"t":1}')) == {None}
    payload = {name: [{"ts": LANDED_S * 1000, "values": {"t": 1}}] for name in ("Device A", "Device B")}
    assert series("v1/gateway/telemetry", payload) == [("Device A", "t", 1.0, 0.0), ("Device B", "t", 1.0, 0.0)]


def test_telegraf_names_its_series_by_tags() -> None:
    metrics = [
        {"name": "cpu", "tags": {"cpu": f"cpu{core}"}, "fields": {"idle": 90 + core}, "timestamp": LANDED_S}
        for core in (0, 1)
    ]
    expected = [("t", "cpu,cpu=cpu0.idle", 90.0, 0.0), ("t", "cpu,cpu=cpu1.idle", 91.0, 0.0)]
    assert series("t", metrics[0]) == expected[:1]
    assert series("t", {"metrics": metrics}) == [(one[0], f"metrics.{one[1]}", *one[2:]) for one in expected]


def test_sensors_that_one_receiver_hears_are_devices_by_model_channel_and_id() -> None:
    sensors = [
        {"model": "Acu", "channel": 1, "id": 5},
        {"model": "Acu", "channel": 2, "id": 5},
        {"model": "B", "id": 5},
    ]
    names = {devices(decode_one("radio/events", json.dumps(sensor | {"t": 1}))).pop() for sensor in sensors}
    assert names == {"Acu/1/5", "Acu/2/5", "B/5"}


def test_topic_that_has_the_id_already_names_the_device() -> None:
    payload = '{"model":"TH","id":"A4:C1:38:00:11:22","t":1}'
    assert devices(decode_one("home/BT/A4C138001122", payload)) == {"home/BT/A4C138001122"}


def test_opc_publisher_names_the_node_and_the_application() -> None:
    def message(code: object) -> dict[str, Any]:
        value = {"Value": 71.5, "SourceTimestamp": "2026-03-14T15:09:26.5Z", "StatusCode": code}
        return {"NodeId": "nsu=x;s=Temp", "ApplicationUri": "urn:plc", "Value": value}

    for payload in ([message(0)], message(0), message({"Code": 0, "Symbol": "Good"})):
        (record,) = decode_one("opc", json.dumps(payload))
        assert (record.device, record.metric, record.value) == ("urn:plc", "nsu=x;s=Temp", 71.5)
        assert (record.time_us, record.quality) == (LANDED_US - 3_600_000_000 + 500_000, "good")
    assert [
        decode_one("opc", json.dumps(message(code)))[0].quality for code in (0x80000000, 0x40920000, "BadTimeout")
    ] == ["bad", "uncertain", "bad"]


def test_shelly_announces_itself_and_meshtastic_names_the_node_that_measured() -> None:
    assert devices(decode_one("shellies/announce", '{"id":"shelly1-A1","model":"SHSW-1"}')) == {"shelly1-A1"}
    nodes = [decode_one("msh/EU/2/json/Long/!aa", json.dumps({"from": node, "rssi": -20})) for node in (1, 2)]
    assert [devices(records) for records in nodes] == [{"!00000001"}, {"!00000002"}]


@pytest.mark.parametrize(
    ("topic", "device", "metric"),
    [
        ("zigbee2mqtt/kitchen/lamp/set", "kitchen/lamp", "set.state"),
        ("zigbee2mqtt/lamp/get", "lamp", "get.state"),
        ("zigbee2mqtt/lamp/set/brightness", "lamp", "set.brightness.state"),
        ("cmnd/plug/Backlog", "plug", "cmnd.Backlog.state"),
        ("house/lamp/set", "house/lamp", "set.state"),
        ("house/lamp/command", "house/lamp", "command.state"),
        ("zigbee2mqtt/lamp", "lamp", "state"),
    ],
)
def test_no_command_is_a_device_or_a_state(topic: str, device: str, metric: str) -> None:
    (record,) = decode_one(topic, '{"state":"ON"}')
    assert (record.device, record.metric) == (device, metric)
