"""Commands set values of units: each is carried out once and answered once, or it is said why not."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.config.connectors import ModbusRtuConfig
from gateway.connectors import commands, polling
from gateway.connectors.commands import forget_others
from gateway.limits import Limits, Verdict
from gateway.store import Cursor, connectors, consumer_names
from tests.gateway.connectors.support import cable, configured, connecting
from tests.gateway.support import joined, running, tcp_port, until
from tools.lab.sim.modbus_units import SimulatedUnit, SimulatedUnits
from tools.lab.testing.client import LONG_S, Client
from tools.lab.testing.gateway import Gateway
from tools.lab.testing.serial_line import SerialLine
from wire.properties import CORRELATION_DATA, MESSAGE_EXPIRY_INTERVAL, RESPONSE_TOPIC

SETPOINT = {"name": "setpoint", "address": 7, "type": "int16", "scale": 0.1, "write": True, "min": -20, "max": 60}
VALUES = [SETPOINT, {"name": "mode", "address": 8}]
UNIT = {"device": "boiler", "address": 3, "interval_s": 0.1, "timeout_s": 0.2, "backoff_s": 0.1, "value": VALUES}
TOPIC = "commands/boiler"
ANSWERS = "answers/desk"


@dataclass
class Desk:
    """A client that publishes commands, and one that gets the answers."""

    publisher: Client
    receiver: Client

    async def send(self, payload: Any, *, qos: int = 2, topic: str = TOPIC, **options: Any) -> None:
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        properties = {RESPONSE_TOPIC: ANSWERS, **options.pop("properties", {})}
        publish = self.publisher.publish_once if qos == 2 else self.publisher.publish
        await publish(topic, data, properties=properties, **options)

    async def answer(self) -> dict[str, Any]:
        packet = await asyncio.wait_for(self.receiver.receive(), LONG_S)
        return dict(json.loads(packet.payload))

    async def ask(self, value: Any, name: str = "setpoint", **options: Any) -> dict[str, Any]:
        await self.send({"command": "write", "name": name, "value": value}, **options)
        return await self.answer()


async def at_desk(port: int) -> Desk:
    return Desk(await Client("desk").connect(port), await joined(port, "receiver", "answers/#"))


@contextmanager
def units_at(line: SerialLine, unit: SimulatedUnit) -> Iterator[None]:
    far = SimulatedUnits(line.far, [unit])
    try:
        yield
    finally:
        far.close()


@asynccontextmanager
async def commanded(folder: Path, unit: SimulatedUnit, **keys: Any) -> AsyncIterator[tuple[Desk, SerialLine]]:
    async with cable() as line, running(folder) as broker:
        config = configured(ModbusRtuConfig, port=line.near, unit=[{**UNIT, **keys}], baud=115_200)
        with units_at(line, unit):
            async with connecting(broker, config):
                yield await at_desk(tcp_port(broker)), line


async def test_a_command_sets_a_value_and_is_answered_with_what_was_read_back(tmp_path: Path) -> None:
    unit = SimulatedUnit(3)
    async with commanded(tmp_path, unit) as (desk, _):
        answer = await desk.ask(-1.5, properties={CORRELATION_DATA: b"nr 5"})
    assert answer == {
        "command": "write",
        "name": "setpoint",
        "wanted": -1.5,
        "written": "yes",
        "value": -1.5,
        "correlation": "nr 5",
    }
    assert (unit.written, unit.writes) == ({7: 0xFFF1}, 1)


async def test_answers_are_counted_by_what_they_say_was_written(tmp_path: Path) -> None:
    async with cable() as line, running(tmp_path) as broker:
        config = configured(ModbusRtuConfig, port=line.near, unit=[UNIT], baud=115_200)
        with units_at(line, SimulatedUnit(3)):
            async with connecting(broker, config) as connectors:
                desk = await at_desk(tcp_port(broker))
                for value in (5, 61, 6):
                    await desk.ask(value)
                await until(
                    lambda: connectors.states()[0].units[0].commands == {"yes": 2, "no": 1}, "three answers counted"
                )


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ({"name": "mode", "value": 1}, "'mode' may not be written: its configuration has no write = true"),
        ({"name": "other", "value": 1}, "boiler has no value 'other'"),
        ({"name": "setpoint", "value": 60.1}, "60.1: expected -20 to 60"),
        ({"name": "setpoint", "value": True}, "True: expected a finite number"),
        ({"name": "setpoint", "value": "NaN"}, "'NaN': expected a finite number"),
        ({"name": "setpoint", "value": 1, "written": "yes"}, "no command: Object contains unknown field `written`"),
        (b'{"command": "write", "name": "setpoint", "value": NaN}', "no command: JSON is malformed"),
        (b'{"command": "write", "name": "setpoint", "value": 1e999}', "no command: "),
        (b"\xff\xfe", "no command: "),
        (b"{" * 1025, "a command of 1025 bytes, expected 1024 at most"),
    ],
)
async def test_a_command_that_may_not_be_is_refused_with_the_reason(tmp_path: Path, command: Any, error: str) -> None:
    unit = SimulatedUnit(3)
    async with commanded(tmp_path, unit) as (desk, _):
        await desk.send(command if isinstance(command, bytes) else {"command": "write", **command})
        answer = await desk.answer()
        assert answer["written"] == "no" and answer["error"].startswith(error)
        assert (await desk.ask(5))["written"] == "yes"
    assert unit.writes == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [({"qos": 1}, "it has QoS 1: expected QoS 2"), ({"retain": True}, "it is retained")],
)
async def test_a_command_has_to_come_once(tmp_path: Path, options: dict[str, Any], error: str) -> None:
    unit = SimulatedUnit(3)
    async with commanded(tmp_path, unit) as (desk, _):
        answer = await desk.ask(5, **options)
    assert answer["written"] == "no" and answer["error"].startswith(error)
    assert not unit.writes


@pytest.mark.parametrize(
    ("code", "written"), [(1, "no"), (2, "no"), (3, "no"), (6, "no"), (4, "unknown"), (5, "unknown")]
)
async def test_an_exception_says_no_only_where_the_unit_has_surely_done_nothing(
    tmp_path: Path, code: int, written: str
) -> None:
    async with commanded(tmp_path, SimulatedUnit(3, exception=code)) as (desk, _):
        answer = await desk.ask(5)
    assert answer["written"] == written and answer["error"].startswith(f"exception {code}")


async def test_a_unit_that_does_not_answer_a_write_may_have_taken_it_and_is_asked_what_is_there(tmp_path: Path) -> None:
    unit = SimulatedUnit(3)
    async with commanded(tmp_path, unit, interval_s=3600, timeout_s=0.3) as (desk, _):
        assert (await desk.ask(4))["written"] == "yes"
        unit.late_s = 0.4  # behind the timeout
        answer = await desk.ask(5)
        assert (answer["written"], answer["error"].partition(";")[0]) == ("unknown", "no answer")
        unit.late_s = 0
        unit.is_dead = True
        await until(lambda: not unit.late_s, "the unit is dead")
    assert unit.writes == 2


async def test_a_unit_that_is_dead_is_not_written_to(tmp_path: Path) -> None:
    unit = SimulatedUnit(3, is_dead=True)
    async with commanded(tmp_path, unit) as (desk, _):
        answer = await desk.ask(5)
        assert answer["written"] == "no" and "no answer" in answer["error"]
    assert not unit.asked


async def test_a_command_is_refused_while_the_port_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "OPEN_WITHIN_S", 0.1)
    monkeypatch.setattr(polling, "LOOK_S", 0.02)
    unit = SimulatedUnit(3)
    async with commanded(tmp_path, unit) as (desk, line):
        assert (await desk.ask(4))["written"] == "yes"
        line.hang_up()
        answer = await desk.ask(5)
    assert answer["written"] in ("no", "unknown") and unit.writes == 1


async def test_a_command_whose_time_is_over_is_not_carried_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = SimulatedUnit(3)
    async with commanded(tmp_path, unit):
        pass
    async with cable() as line, running(tmp_path) as broker:
        desk = await at_desk(tcp_port(broker))
        command = {"command": "write", "name": "setpoint", "value": 5}
        await desk.send(command, properties={MESSAGE_EXPIRY_INTERVAL: 60})
        monkeypatch.setattr(commands, "now_ms", lambda: 1000 * int(time.time() + 61))
        config = configured(ModbusRtuConfig, port=line.near, unit=[UNIT], baud=115_200)
        with units_at(line, unit):
            async with connecting(broker, config):
                answer = await desk.answer()
    assert (answer["written"], answer["error"]) == ("no", "its time was over before it could be carried out")
    assert not unit.writes


async def test_a_response_topic_whose_consumer_is_full_holds_up_no_other_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with commanded(tmp_path, SimulatedUnit(3)) as (desk, _):
        await desk.receiver.subscribe("telemetry/boiler/answer")
        verdict = Limits.verdict

        def full(limits: Limits, topic: str, *about: Any, **more: Any) -> Verdict:
            return Verdict.WAIT if topic == "answers/full" else verdict(limits, topic, *about, **more)

        monkeypatch.setattr(Limits, "verdict", full)
        answer = await desk.ask(5, properties={RESPONSE_TOPIC: "answers/full"})
        assert (answer["wanted"], answer["written"]) == (5, "yes")
        assert (await desk.ask(6))["wanted"] == 6


@pytest.mark.parametrize("topic", ["holdfast/statement/test-gateway/central", "hf/receipt", "hf/receipt/boiler"])
async def test_no_answer_goes_where_gateways_and_jobs_are_believed(tmp_path: Path, topic: str) -> None:
    async with commanded(tmp_path, SimulatedUnit(3)) as (desk, _):
        await desk.receiver.subscribe("telemetry/boiler/answer", topic)
        await desk.send({"command": "write", "name": "setpoint", "value": 5}, properties={RESPONSE_TOPIC: topic})
        assert (await desk.receiver.receive()).topic == "telemetry/boiler/answer"


async def test_an_answer_never_becomes_a_command(tmp_path: Path) -> None:
    unit = SimulatedUnit(3)
    async with commanded(tmp_path, unit) as (desk, _):
        await desk.receiver.subscribe("telemetry/boiler/answer", options=2)
        assert (await desk.ask(5, properties={RESPONSE_TOPIC: TOPIC}))["written"] == "yes"
        assert (await desk.ask(6))["value"] == 6
    assert unit.writes == 2


async def test_polls_go_on_while_commands_come_without_end(tmp_path: Path) -> None:
    unit = SimulatedUnit(3)
    async with commanded(tmp_path, unit, interval_s=0.01) as (desk, _):
        assert (await desk.ask(4))["written"] == "yes"
        for _ in range(20):
            polls = unit.asked - 2 * unit.writes  # a command asks twice
            for value in range(3):
                await desk.ask(value)
            assert unit.asked - 2 * unit.writes > polls


async def test_what_was_noted_of_a_command_is_lost_so_it_is_not_carried_out(tmp_path: Path) -> None:
    unit, command = SimulatedUnit(3), {"command": "write", "name": "setpoint", "value": 5}
    async with commanded(tmp_path, unit) as (desk, _):
        assert (await desk.ask(4))["written"] == "yes"
    async with running(tmp_path) as broker:
        desk = await at_desk(tcp_port(broker))
        await desk.send(command)
        await desk.send(command)
        await broker.log.submit([connectors.forget_taken("connector/hall")])
    async with commanded(tmp_path, unit) as (desk, _):
        desk.receiver = await again(desk.receiver.port)
        for _ in range(2):
            answer = await desk.answer()
            assert (answer["written"], answer["value"]) == ("unknown", 4)
        assert (await desk.ask(6))["written"] == "yes"
    assert unit.writes == 2


@pytest.mark.parametrize(
    ("what", "error"),
    [("port", "the line is not open"), ("late", commands.EXPIRED), ("rights", "'setpoint' may not be")],
)
async def test_what_a_former_process_has_begun_is_never_said_not_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, error: str
) -> None:
    """Whatever hinders it to look at the unit now."""
    unit = SimulatedUnit(3)
    async with commanded(tmp_path, unit) as (desk, _):
        assert (await desk.ask(4))["written"] == "yes"
    async with cable() as line, running(tmp_path) as broker:
        desk = await at_desk(tcp_port(broker))
        command = {"command": "write", "name": "setpoint", "value": 5}
        await desk.send(command, properties={MESSAGE_EXPIRY_INTERVAL: 60})
        begun = connectors.TakenCommand(broker.log.head, is_answered=False)
        await broker.log.submit([connectors.save_taken("connector/hall", begun)])
        broker.log.found.taken_commands["connector/hall"] = begun
        monkeypatch.setattr(polling, "OPEN_WITHIN_S", 0.1)
        monkeypatch.setattr(polling, "LOOK_S", 0.02)
        if what == "late":
            monkeypatch.setattr(commands, "now_ms", lambda: 1000 * int(time.time() + 61))
        other = {**SETPOINT, "name": "other", "address": 1}
        read_only = {key: SETPOINT[key] for key in ("name", "address", "type")}
        values = [read_only, other] if what == "rights" else VALUES
        port = str(tmp_path / "none") if what == "port" else line.near
        config = configured(ModbusRtuConfig, port=port, unit=[{**UNIT, "value": values}], baud=115_200)
        with units_at(line, unit):
            async with connecting(broker, config):
                answer = await desk.answer()
    assert answer["written"] == "unknown" and error in answer["error"]
    assert unit.writes == 1


async def test_a_connector_that_takes_no_commands_any_more_keeps_no_messages(tmp_path: Path) -> None:
    async with commanded(tmp_path, SimulatedUnit(3)) as (desk, _):
        assert (await desk.ask(4))["written"] == "yes"
    async with running(tmp_path) as broker:
        Cursor(broker.log, consumer_names.COMMANDS + "other", ["commands/other"]).close()
        forget_others(broker.log, ["other"])
        names = [one for one in broker.log.consumers.names() if one.startswith(consumer_names.COMMANDS)]
        assert names == ["connector/other"]
    async with running(tmp_path) as broker:
        assert broker.log.found.taken_commands == {}


def process(folder: Path, line: SerialLine, timeout_s: float = 0.2, interval_s: float = 0.1) -> Gateway:
    values = ", ".join(f"{key} = {json.dumps(value)}" for key, value in SETPOINT.items())
    return Gateway(
        folder,
        f'[[connector]]\nkind = "modbus_rtu"\nname = "hall"\nport = "{line.near}"\nbaud = 115200\n[[connector.unit]]\n'
        f'device = "boiler"\naddress = 3\ninterval_s = {interval_s}\ntimeout_s = {timeout_s}\n'
        f"value = [{{ {values} }}]\n",
    )


async def test_a_command_on_the_line_when_the_gateway_is_killed_is_not_carried_out_again(tmp_path: Path) -> None:
    unit = SimulatedUnit(3)
    async with cable() as line:
        with units_at(line, unit):
            gateway = process(tmp_path, line, timeout_s=60, interval_s=3600)
            await gateway.up()
            desk = await at_desk(gateway.port)
            assert (await desk.ask(4))["written"] == "yes"
            unit.late_s = 3600
            await desk.send({"command": "write", "name": "setpoint", "value": 5})
            await until(lambda: unit.writes == 2, "the unit has the command")
            gateway.kill()
            unit.late_s = unit.free_s = 0
            await gateway.up()
            desk = Desk(await Client("desk").connect(gateway.port), await again(gateway.port))
            while (answer := await desk.answer())["wanted"] != 5:
                pass  # the first answer may come again
            assert answer["error"] == "the gateway has ended while it wrote"
            assert (answer["written"], answer["value"]) == ("unknown", 5)
            assert (await desk.ask(6))["value"] == 6  # and no second answer came before this one
            assert unit.writes == 3
            await gateway.down()


async def again(port: int) -> Client:
    return await Client("receiver", clean_start=False).connect(port)


@pytest.mark.long
async def test_through_kills_each_command_is_answered_once_and_no_value_is_set_twice(tmp_path: Path, seed: int) -> None:
    dice, kills, sent = random.Random(seed), 20, 0
    unit = SimulatedUnit(3, late_s=0.01)
    async with cable() as line, AsyncExitStack() as stack:
        stack.enter_context(units_at(line, unit))
        gateway = process(tmp_path, line)
        await gateway.up()
        await (await at_desk(gateway.port)).receiver.disconnect()
        for _ in range(kills):
            desk = Desk(await Client("desk").connect(gateway.port), Client())
            for _ in range(dice.randrange(1, 8)):
                await desk.send({"command": "write", "name": "setpoint", "value": sent / 10})
                sent += 1
            await asyncio.sleep(dice.random() / 5)
            await gateway.interrupt()
        desk = Desk(await Client("desk").connect(gateway.port), await again(gateway.port))
        await desk.send({"command": "write", "name": "none", "value": 0})
        answers: list[dict[str, Any]] = []
        while (answer := await desk.answer())["name"] != "none":
            answers.append(answer)
        await gateway.down()
    assert sorted(one["wanted"] for one in answers) == [number / 10 for number in range(sent)]
    done = [one for one in answers if one["written"] == "yes"]
    unknown = [one for one in answers if one["written"] == "unknown"]
    assert len(done) + len(unknown) == sent, {one.get("error") for one in answers}
    assert len(unknown) <= kills
    assert len(done) <= unit.writes <= sent
