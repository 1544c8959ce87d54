"""Payloads as Tasmota, Zigbee2MQTT, Shelly and The Things Stack publish them, without any configuration.

Topics, fields and types come from their documentation; names and numbers are ours.
"""

import json
from datetime import UTC, datetime
from typing import Any

from tests.cloud.transforms.decoding import decode_one, devices, problem_of, times_us, values


def us(*moment: int) -> int:
    return round(datetime(*moment, tzinfo=UTC).timestamp() * 1_000_000)  # type: ignore[misc, arg-type]


def test_tasmota_sensor_gives_each_value_and_keeps_its_local_time_as_text() -> None:
    sensor = {
        "Time": "2026-03-14T15:09:26",
        "DS18B20-1": {"Id": "3C01D607A1B2", "Temperature": 21.4},
        "ENERGY": {"Total": 12.345, "Power": [7, 0], "Factor": 0.98},
        "TempUnit": "C",
    }
    records = decode_one("tele/cellar/SENSOR", json.dumps(sensor))
    assert devices(records) == {"cellar"}
    assert values(records) == {
        "SENSOR.Time": "2026-03-14T15:09:26",
        "SENSOR.DS18B20-1.Id": "3C01D607A1B2",
        "SENSOR.DS18B20-1.Temperature": 21.4,
        "SENSOR.ENERGY.Total": 12.345,
        "SENSOR.ENERGY.Power.0": 7.0,
        "SENSOR.ENERGY.Power.1": 0.0,
        "SENSOR.ENERGY.Factor": 0.98,
        "SENSOR.TempUnit": "C",
    }
    assert times_us(records) == {None}  # the zone is not known


def test_tasmota_time_with_its_offset_from_utc_is_the_time_of_the_values() -> None:
    records = decode_one("tele/cellar/STATE", '{"Time":"2026-03-14T15:09:26+01:00","POWER":"ON","Wifi":{"RSSI":74}}')
    assert values(records) == {"STATE.POWER": "ON", "STATE.Wifi.RSSI": 74.0}
    assert times_us(records) == {us(2026, 3, 14, 14, 9, 26)}


def test_tasmota_last_will_and_power_are_booleans() -> None:
    assert values(decode_one("tele/cellar/LWT", "Online")) == {"LWT": True}
    assert values(decode_one("stat/cellar/POWER", "OFF")) == {"POWER": False}
    assert devices(decode_one("stat/cellar/POWER", "OFF")) == {"cellar"}


def test_zigbee2mqtt_device_gives_each_value_with_the_time_that_it_was_seen() -> None:
    state = {"battery": 97, "contact": False, "action": None, "update": {"state": "idle"}, "last_seen": 1773500966000}
    records = decode_one("zigbee2mqtt/kitchen/window", json.dumps(state))
    assert devices(records) == {"kitchen/window"}
    assert values(records) == {"battery": 97.0, "contact": False, "update.state": "idle"}
    assert times_us(records) == {1773500966000000}
    in_words = decode_one("zigbee2mqtt/lamp", '{"state":"ON","last_seen":"2026-03-14T15:09:26.000Z"}')
    assert times_us(in_words) == {us(2026, 3, 14, 15, 9, 26)}


def test_zigbee2mqtt_availability_belongs_to_the_device_in_both_of_its_forms() -> None:
    as_json = decode_one("zigbee2mqtt/kitchen/window/availability", '{"state":"online"}')
    as_word = decode_one("zigbee2mqtt/kitchen/window/availability", "offline")
    assert devices(as_json) == devices(as_word) == {"kitchen/window"}
    assert values(as_json) == {"availability.state": "online"}
    assert values(as_word) == {"availability": False}


def test_shelly_of_the_first_generation_publishes_a_value_in_each_topic() -> None:
    for level, payload, metric, value in (
        ("relay/0", "on", "relay.0", True),
        ("relay/0/power", "42.07", "relay.0.power", 42.07),
        ("online", "true", "online", True),
    ):
        records = decode_one(f"shellies/shellyplug-s-A1B2C3/{level}", payload)
        assert devices(records) == {"shellyplug-s-A1B2C3"}
        assert values(records) == {metric: value}


def test_shelly_of_later_generations_publishes_status_and_notifications_with_their_time() -> None:
    status = {"id": 0, "output": True, "apower": 8.9, "aenergy": {"total": 6.53, "by_minute": [45.1, 0.0]}}
    records = decode_one("shellyplus1pm-a1b2c3d4e5f6/status/switch:0", json.dumps(status))
    assert devices(records) == {"shellyplus1pm-a1b2c3d4e5f6"}
    assert values(records) == {
        "status.switch:0.id": 0.0,
        "status.switch:0.output": True,
        "status.switch:0.apower": 8.9,
        "status.switch:0.aenergy.total": 6.53,
        "status.switch:0.aenergy.by_minute.0": 45.1,
        "status.switch:0.aenergy.by_minute.1": 0.0,
    }
    notification = {
        "src": "shellyplus1pm-a1b2c3d4e5f6",
        "method": "NotifyStatus",
        "params": {"ts": 1773500966.25, "switch:0": {"id": 0, "apower": 9.1}},
    }
    records = decode_one("shellyplus1pm-a1b2c3d4e5f6/events/rpc", json.dumps(notification))
    assert values(records)["events.rpc.params.switch:0.apower"] == 9.1
    assert times_us(records) == {1773500966250000}


def test_uplink_of_the_things_stack_belongs_to_the_device_of_its_application() -> None:
    uplink: dict[str, Any] = {
        "end_device_ids": {"device_id": "soil-7", "application_ids": {"application_id": "orchard"}},
        "received_at": "2026-03-14T15:09:26.123456789Z",
        "uplink_message": {
            "f_port": 2,
            "frm_payload": "AQIDBA==",
            "decoded_payload": {"moisture": 31.5, "pumping": False},
            "rx_metadata": [{"gateway_ids": {"gateway_id": "barn"}, "rssi": -97, "snr": 7.5}],
        },
    }
    records = decode_one("v3/orchard@ttn/devices/soil-7/up", json.dumps(uplink))
    assert devices(records) == {"orchard@ttn/soil-7"}
    assert times_us(records) == {us(2026, 3, 14, 15, 9, 26, 123456)}
    found = values(records)
    assert found["up.uplink_message.decoded_payload.moisture"] == 31.5
    assert found["up.uplink_message.decoded_payload.pumping"] is False
    assert found["up.uplink_message.rx_metadata.0.rssi"] == -97.0
    assert "up.received_at" not in found


def test_a_value_without_any_configuration_takes_device_and_metric_from_its_topic() -> None:
    (record,) = decode_one("house/cellar/temperature", "21.5")
    assert (record.device, record.metric, record.value) == ("house/cellar", "temperature", 21.5)
    (record,) = decode_one("temperature", "21.5")
    assert (record.device, record.metric) == (None, "temperature")


def test_a_payload_that_does_not_speak_for_itself_is_refused_with_the_reason() -> None:
    assert problem_of("house/cellar", "Heating").startswith("it is neither JSON nor a number nor ON or OFF")
    assert problem_of("house/cellar", b"\xff\xfe") == "it is UTF-16, and only UTF-8 is decoded"
    assert problem_of("house/cellar", b"\xff\x01") == "it is not UTF-8: invalid start byte at byte 0"
