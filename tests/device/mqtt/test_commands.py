"""Messages to the device: what it does, that it is done once, and the answers that show it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.device.firmware import TOPIC, Firmware, eventually, records, tcp
from tests.support.scripted_broker import ScriptedBroker, scripted_broker
from tools.lab.micropython import MicroPython
from wire.codec.packets import Publish
from wire.properties import CORRELATION_DATA, RESPONSE_TOPIC

COMMANDS = "commands/garage"


def command(identifier: int, dup: bool = False, **told: Any) -> Publish:
    properties = {CORRELATION_DATA: b"call %d" % identifier, RESPONSE_TOPIC: "answers"}
    return Publish(COMMANDS, json.dumps(told).encode(), 2, False, dup, identifier, properties)


def answers(broker: ScriptedBroker) -> list[dict[str, Any]]:
    """Each answer once, in order, by identity."""
    unique = {p.packet_identifier: p for publishes in broker.publishes for p in publishes if p.topic == "answers"}
    return [json.loads(publish.payload) for publish in unique.values()]


def firmware(vm: MicroPython, folder: Path, broker: ScriptedBroker, **change: Any) -> Firmware:
    return Firmware(vm, folder, tcp(broker.port), **{"commands": COMMANDS, "interval_ms": 1000, **change})


async def test_commands_are_answered_with_their_correlation_data(micropython: MicroPython, tmp_path: Path) -> None:
    told = [
        command(1, command="identify"),
        command(2, command="interval", interval_ms=20),
        command(3, command="report"),
        command(4, command="dance"),
    ]
    async with scripted_broker(commands=told) as broker:
        device = firmware(micropython, tmp_path, broker)
        await device.start()
        await eventually(lambda: len(answers(broker)) == 4)
        await device.says("identify")
        await device.end()
        first, *others = answers(broker)
        assert first["client_id"] == "garage-1" and first["boot"] == 1 and first["correlation"] == "call 1"
        assert others[0] == {"command": "interval", "done": True, "interval_ms": 20, "correlation": "call 2"}
        assert others[1]["done"] and "expected identify" in others[2]["error"]
        assert sorted(broker.pubrecs) == [1, 2, 3, 4]
        names = {record["n"] for p in broker.publishes[0] if p.topic == TOPIC for record in records(p)}
        assert {"health.store_fill", "health.heap_free", "health.reset_cause", "health.starts"} <= names


async def test_changed_interval_outlasts_a_power_cut(micropython: MicroPython, tmp_path: Path) -> None:
    async with scripted_broker(commands=[command(1, command="interval", interval_ms=10)]) as broker:
        device = firmware(micropython, tmp_path, broker, interval_ms=3_600_000)
        await device.start()
        await eventually(lambda: len(answers(broker)) == 1)
        await device.kill()
        broker.commands = []
        made = len(device.journal())
        await device.start()
        await eventually(lambda: len(device.journal()) > made + 10)
        await device.end()


async def test_restart_is_done_once(micropython: MicroPython, tmp_path: Path) -> None:
    async with scripted_broker(commands=[command(1, command="restart")]) as broker:
        device = firmware(micropython, tmp_path, broker)
        await device.start()
        await eventually(lambda: broker.pubrecs == [1])
        broker.session_present = True
        broker.commands = [command(1, dup=True, command="restart")]
        await device.says("boot 2")
        await eventually(lambda: broker.pubrecs == [1, 1] and broker.pubcomps)
        lines = await device.end()
        assert not any("boot 3" in line for line in lines)
        assert len(answers(broker)) == 1


@pytest.mark.parametrize("operation", range(1, 16))
async def test_command_is_executed_once_wherever_the_power_is_cut(
    operation: int, micropython: MicroPython, tmp_path: Path, seed: int
) -> None:
    """The cut comes at each flash operation after the first start; the broker repeats what has no PUBREC."""
    print(f"seed {seed}")
    async with scripted_broker(session_present=True) as broker:
        device = firmware(micropython, tmp_path, broker, interval_ms=3_600_000, commands=COMMANDS)
        await device.start()
        await device.says("connected")
        await eventually(lambda: broker.publishes[0])
        await device.kill()
        broker.commands = [command(7, command="identify")]
        whole = device.argv
        arguments = [str(device.config_path), str(operation), str(seed)]
        device.argv = [*whole[:-2], "-m", "tools.lab.torture.device.power", *arguments]
        await device.start()
        await eventually(lambda: not device.running or len(answers(broker)) == 1)
        await device.kill()
        await broker.all_closed()
        device.argv = whole
        broker.commands = [] if 7 in broker.pubrecs else [command(7, dup=True, command="identify")]
        await device.start()
        await eventually(lambda: len(answers(broker)) == 1 and 7 in broker.pubrecs)
        broker.commands = []  # what it has released it does not repeat [MQTT-4.3.3-6]
        connections = len(broker.publishes)
        await device.kill()
        await device.start()
        await eventually(lambda: len(broker.publishes) > connections)
        await device.says("connected")
        await device.end()
        assert len(answers(broker)) == 1
