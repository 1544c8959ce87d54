"""Devices as Home Assistant is told of them."""

import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gateway.config.home_assistant import HomeAssistantConfig
from gateway.connectors.reading import Reading
from gateway.connectors.senml import encode
from gateway.home_assistant import assistant as module
from gateway.home_assistant.discovery import id_of
from host.readings import measured_in
from tests.gateway.support import connected, running, said_of, subscribed, until
from wire.codec.packets import Puback, Publish
from wire.reasons import NOT_AUTHORIZED

SHOWN = {"home_assistant": HomeAssistantConfig()}
HOSTILE = '{{ states("x") }}/+#\u202e'


def now_ms() -> int:
    return int(time.time() * 1000)


def document_of(packet: Publish) -> dict[str, Any]:
    assert packet.topic.startswith("homeassistant/device/")
    return dict(msgspec.json.decode(packet.payload))


async def test_a_device_is_announced_before_its_first_value(tmp_path: Path) -> None:
    async with running(tmp_path, **SHOWN) as broker:
        assistant = await subscribed(broker, "assistant", "homeassistant/#", "$SYS/home-assistant/#")
        device = await connected(broker, "roof")
        await device.publish("site/roof", b'{"t": 21.5, "open": true}')
        document = document_of(await assistant.receive())
        assert document["device"] == {"identifiers": ["holdfast-test_2dgateway-roof"], "name": "roof"}
        assert document["origin"]["name"] == "Holdfast"
        by_name = {one["name"]: one for one in document["components"].values()}
        assert by_name["t"]["platform"] == "sensor"
        assert by_name["open"]["platform"] == "binary_sensor"
        assert by_name["t"]["expire_after"] == 3600
        shown = [await assistant.receive(), await assistant.receive()]
        assert {one.topic: one.payload for one in shown} == {
            by_name["t"]["state_topic"]: b"21.5",
            by_name["open"]["state_topic"]: b"ON",
        }
        assert not any(one.retain for one in shown)


async def test_the_announcement_is_retained_and_no_client_can_replace_it(tmp_path: Path) -> None:
    async with running(tmp_path, **SHOWN) as broker:
        first = await subscribed(broker, "first", "$SYS/home-assistant/#")
        device = await connected(broker, "roof")
        await device.publish("site/roof", b"21.5")
        state = await first.receive()
        second = await subscribed(broker, "second", "homeassistant/#")
        packet = await second.receive()
        assert packet.retain
        for topic in (packet.topic, state.topic):
            device.send(topic, b"forged", qos=1)
            assert (await device.expect(Puback)).reason_code == NOT_AUTHORIZED


@pytest.mark.parametrize("form", ["json", "cbor"])
async def test_a_backlog_is_not_shown_as_now(tmp_path: Path, form: Any) -> None:
    async with running(tmp_path, **SHOWN) as broker:
        assistant = await subscribed(broker, "assistant", "$SYS/home-assistant/#")
        device = await connected(broker, "roof")
        now = now_ms()
        for age_s, value in ((3600, 1.0), (5, 2.0), (30, 3.0), (0, 4.0)):
            reading = Reading("temperature", value, "Cel")
            await device.publish("site/roof", encode("roof", now - age_s * 1000, [reading], form))
        assert [(await assistant.receive()).payload for _ in range(2)] == [b"2.0", b"4.0"]


async def test_a_unit_of_senml_has_its_name_and_class_there(tmp_path: Path) -> None:
    async with running(tmp_path, **SHOWN) as broker:
        assistant = await subscribed(broker, "assistant", "homeassistant/#")
        device = await connected(broker, "roof")
        await device.publish("site/roof", encode("roof", now_ms(), [Reading("temperature", 1.5, "Cel")], "cbor"))
        (component,) = document_of(await assistant.receive())["components"].values()
        assert (component["unit_of_measurement"], component["device_class"]) == ("°C", "temperature")


async def test_names_of_devices_reach_no_topic_and_no_template(tmp_path: Path) -> None:
    async with running(tmp_path, **SHOWN) as broker:
        assistant = await subscribed(broker, "assistant", "homeassistant/#")
        device = await connected(broker, HOSTILE)
        await device.publish("site/roof", msgspec.json.encode({HOSTILE: 1}))
        packet = await assistant.receive()
        assert re.fullmatch(r"homeassistant/device/[a-zA-Z0-9_-]+/config", packet.topic)
        (component,) = document_of(packet)["components"].values()
        assert not [key for key in component if "template" in key]
        assert [key for key, value in component.items() if "{" in str(value)] == ["name"]
        assert "\u202e" not in component["name"]


async def test_a_value_that_was_a_text_at_first_is_shown_as_a_number(tmp_path: Path) -> None:
    async with running(tmp_path, **SHOWN) as broker:
        assistant = await subscribed(broker, "assistant", "homeassistant/#", "$SYS/home-assistant/#")
        device = await connected(broker, "roof")
        for payload, shown in ((b'{"t": "starting"}', b"starting"), (b'{"t": 21.5}', b"21.5")):
            await device.publish("site/roof", payload)
            newest = list(document_of(await assistant.receive())["components"].values())[-1]
            state = await assistant.receive()
            assert (state.topic, state.payload) == (newest["state_topic"], shown)


async def test_a_device_with_many_values_is_shown_in_part(tmp_path: Path) -> None:
    async with running(tmp_path, **SHOWN) as broker:
        assistant = await subscribed(broker, "assistant", "homeassistant/#")
        device = await connected(broker, "roof")
        await device.publish("site/roof", msgspec.json.encode({f"v{number}": number for number in range(200)}))
        assert len(document_of(await assistant.receive())["components"]) == 32


async def test_the_device_that_is_silent_longest_makes_room_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "DEVICES_MAX", 2)
    clock = SimpleNamespace(time=lambda: time.time() - 3601)
    monkeypatch.setattr(module, "time", clock)
    async with running(tmp_path, **SHOWN) as broker:
        assistant = await subscribed(broker, "assistant", "homeassistant/#")
        for name in ("roof", "cellar", "attic"):
            await (await connected(broker, name)).publish("site/t", b"1")
        await until(lambda: said_of(caplog, "more devices than Home Assistant is shown"), "the limit is told")
        clock.time = time.time
        await (await connected(broker, "late")).publish("site/t", b"1")
        packets = [await assistant.receive() for _ in range(4)]
        roof, _, gone, late = ((one.topic.partition("gateway-")[2].partition("/")[0], one.payload) for one in packets)
        assert (roof[0], gone, late[0]) == ("roof", ("roof", b""), "late")
        second = await subscribed(broker, "second", "homeassistant/#")
        assert {packets[1].topic, packets[3].topic} == {(await second.receive()).topic for _ in range(2)}


async def test_a_clock_that_is_set_back_hides_no_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    day_ms = 86_400_000
    clock = SimpleNamespace(time=lambda: time.time() + day_ms / 1000)
    monkeypatch.setattr(module, "time", clock)
    async with running(tmp_path, **SHOWN) as broker:
        assistant = await subscribed(broker, "assistant", "$SYS/home-assistant/#")
        device = await connected(broker, "roof")
        await device.publish("site/t", encode("roof", now_ms() + day_ms, [Reading("t", 1.0, "Cel")], "json"))
        assert (await assistant.receive()).payload == b"1.0"
        clock.time = time.time
        await device.publish("site/t", encode("roof", now_ms(), [Reading("t", 2.0, "Cel")], "json"))
        assert (await assistant.receive()).payload == b"2.0"


async def test_a_fault_is_logged_and_later_values_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0)
    with monkeypatch.context() as broken:
        broken.setattr(module, "measured_in", None)
        async with running(tmp_path, **SHOWN) as broker:
            assistant = await subscribed(broker, "assistant", "$SYS/home-assistant/#")
            device = await connected(broker, "roof")
            await device.publish("site/roof", b"1")
            await until(lambda: "unexpected failure" in caplog.text, "the fault is told")
            broken.undo()
            await device.publish("site/roof", b"2")
            assert (await assistant.receive()).payload == b"2"


def test_no_two_names_have_one_id() -> None:
    names = ["a", "a_", "a_5f", "a-b", "a/b", "ä", "", "x" * 65, "x" * 66, "_h"]
    assert len({id_of(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"[1]",
        b'[{"bn":5,"v":1}]',
        b"{",
        b"[" * 4000,
        b"\x81" * 4000,
        b'[{"n":1,"v":2}]',
        b'[{"n":"a","v":"b","t":"c"}]',
        b'[{"n":"a","v":1,"bt":1e999}]',
        b'{"a":null,"b":[1],"c":""}',
        b"\xa1\x61a\xfb\x7f\xf8\0\0\0\0\0\0",
        b"1" * 5000,
    ],
)
def test_what_is_no_value_is_left_out(payload: bytes) -> None:
    assert measured_in(payload, 0)[1] == []
