"""A sample of the torture of devices, and proof that it notices faults."""

import json
import random
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.support.result_shape import faults_of
from tools.lab.micropython import MicroPython
from tools.lab.testing.mosquitto import Mosquitto
from tools.lab.testing.process import ProcessFailed
from tools.lab.torture.device.command import device, torture
from tools.lab.torture.device.kinds import Kind
from tools.lab.torture.device.life import Tormented
from tools.lab.torture.device.outcome import DeviceOutcome, count_disorder, judge
from tools.lab.torture.device.witness import Witness
from wire.codec.packets import Connack, Packet, Publish, Pubrec, Pubrel, encode
from wire.identity import IDENTITY_PROPERTY, encode_identity
from wire.properties import USER_PROPERTY

app = typer.Typer()
app.command()(device)


async def test_nothing_is_lost_and_commands_are_answered_once_over_cuts_of_everything(
    micropython: MicroPython, tmp_path: Path, seed: int
) -> None:
    outcome = await torture(micropython, tmp_path, "mosquitto", 2, 20, seed)
    assert outcome.holds, outcome
    assert min(outcome.struck[kind] for kind in ("power", "line", "broker")) > 0
    assert outcome.messages > 50


async def test_a_run_whose_broker_does_not_start_again_ends_with_the_reason(
    micropython: MicroPython, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: Mosquitto) -> None:
        raise ProcessFailed("the broker does not listen")

    monkeypatch.setattr(Mosquitto, "interrupt", fail)
    with pytest.raises(ProcessFailed, match="the broker does not listen"):
        await torture(micropython, tmp_path, "mosquitto", 1, 20, 1)


def test_the_command_reports_what_it_did_to_our_gateway(seed: int) -> None:
    arguments = ["--broker", "gateway", "--qos", "1", "--cuts", "10", "--seed", str(seed), "--json"]
    result = CliRunner().invoke(app, arguments)
    report = json.loads(result.stdout.splitlines()[-1])
    assert result.exit_code == 0, report
    assert faults_of(report, "torture") == []
    assert (report["broker"], report["qos"], report["seed"]) == ("gateway", 1, seed)
    assert sum(report["struck"][kind] for kind in ("power", "line", "broker")) >= 10
    assert report["lost"] == report["disorder"] == 0


def test_each_kind_of_loss_is_a_failure() -> None:
    assert DeviceOutcome(broker="gateway", qos=1, twice=1, resent=1, told=1).holds
    assert not DeviceOutcome(broker="gateway", qos=2, twice=1).holds
    for broken in ({"lost": 1}, {"disorder": 1}, {"unanswered": 1}, {"answered_twice": 1}, {"violations": ["x"]}):
        assert not DeviceOutcome(broker="gateway", qos=1, **broken).holds


@pytest.mark.parametrize("fault", ["begun_anew", "overtaken"])
def test_only_mosquitto_may_begin_a_command_anew_or_send_it_out_of_order(fault: str) -> None:
    assert DeviceOutcome(broker="mosquitto", qos=2, **{fault: 1}).holds  # type: ignore[arg-type]
    assert not DeviceOutcome(broker="gateway", qos=2, **{fault: 1}).holds  # type: ignore[arg-type]


EPOCH = 7
GAP = [{"n": "gap.first", "v": 2}, {"n": "gap.last", "v": 5}, {"n": "gap.count", "v": 2}]


def told_gap(reason: str) -> bytes:
    return json.dumps([*GAP, {"n": "gap.reason", "vs": reason}]).encode()


def tormented(folder: Path, kind: Kind, stored: int) -> Tormented:
    """A device that has stored messages 1 to `stored`."""
    (folder / f"{kind.name}.journal").write_text("".join(f"{EPOCH:08x} {seq} 1\n" for seq in range(1, stored + 1)))
    return Tormented(MicroPython([], ""), folder, kind, 0, 2, random.Random(0))


def judged(device: Tormented, came: list[tuple[int, bytes]]) -> DeviceOutcome:
    """`came`: numbers and payloads of what came to a subscriber at QoS 2."""
    outcome = DeviceOutcome(broker="gateway", qos=2)
    judge(outcome, [device], [(encode_identity(device.name, EPOCH, seq), payload) for seq, payload in came])
    return outcome


@pytest.mark.parametrize(
    ("kind", "reason", "lost"),
    [
        (Kind("one", on_full="drop_oldest"), "dropped", 0),
        (Kind("one", lost_session="drop"), "forsaken", 0),
        (Kind("one"), "dropped", 2),
        (Kind("one", on_full="drop_oldest"), "unreadable", 2),
    ],
)
def test_what_is_missing_is_lost_unless_the_device_may_tell_of_it_and_does(
    kind: Kind, reason: str, lost: int, tmp_path: Path
) -> None:
    came = [(1, b"[]"), (3, b"[]"), (4, b"[]"), (6, told_gap(reason))]
    outcome = judged(tormented(tmp_path, kind, 6), came)
    assert (outcome.messages, outcome.arrived, outcome.lost, outcome.told) == (6, 4, lost, 2 - lost)
    assert outcome.violations == (["2 of one lost: 2, 5"] if lost else [])


def test_a_device_that_tells_of_too_few_is_found_out(tmp_path: Path) -> None:
    device = tormented(tmp_path, Kind("one", on_full="drop_oldest"), 6)
    outcome = judged(device, [(1, b"[]"), (6, told_gap("dropped"))])
    assert outcome.violations == ["one tells of 2 messages from 2 on, 4 are gone"]


def test_a_message_may_come_twice_where_it_went_out_in_two_sessions_and_only_there(tmp_path: Path) -> None:
    device = tormented(tmp_path, Kind("one"), 2)
    for session_present, number in ((False, 1), (False, 2), (True, 2), (True, 1)):
        connection = object()
        device.witness.hear(connection, False, encode(connack(session_present)))
        device.witness.hear(connection, True, encode(publish(3, session_present, number)))
    outcome = judged(device, [(1, b"[]"), (1, b"[]"), (2, b"[]"), (2, b"[]")])
    assert (outcome.resent, outcome.twice) == (1, 1)
    assert "1 of one twice: 2" in outcome.violations


def test_answers_have_the_order_of_their_commands(tmp_path: Path) -> None:
    device = tormented(tmp_path, Kind("one"), 0)
    device.commands += ["commands/one 1", "commands/one 2", "commands/one 3"]
    outcome = judged(device, [(1, b'{"command": "commands/one 2"}'), (2, b'{"command": "commands/one 1"}')])
    assert (outcome.commands, outcome.unanswered, outcome.answered_twice) == (3, 1, 0)
    assert "another order" in outcome.violations[0]


@pytest.mark.parametrize(("heard", "overtaken"), [((2, 1), 1), ((1, 2, 1), 1), ((1, 2), 0)])
def test_answers_have_the_order_in_which_the_broker_sent_the_commands(
    heard: tuple[int, ...], overtaken: int, tmp_path: Path
) -> None:
    device = tormented(tmp_path, Kind("one"), 0)
    device.commands += ["commands/one 1", "commands/one 2"]
    for number in heard:
        packet = Publish("commands/one", f"commands/one {number}".encode(), 2, False, False, number, {})
        device.witness.hear("connection", False, encode(packet))
    outcome = judged(device, [(1, b'{"command": "commands/one 2"}'), (2, b'{"command": "commands/one 1"}')])
    assert (outcome.overtaken, len(outcome.violations)) == (overtaken, 1 - overtaken)


def test_what_overtakes_is_counted() -> None:
    came = [encode_identity("one", 7, seq) for seq in (1, 3, 2, 3, 4)] + [encode_identity("two", 7, 1)]
    assert count_disorder(came) == 1


def publish(identifier: int, dup: bool = False, number: int = 1) -> Publish:
    identity = (IDENTITY_PROPERTY, encode_identity("one", 7, number))
    return Publish("topic", b"[]", 2, False, dup, identifier, {USER_PROPERTY: [identity]})


def connack(session_present: bool) -> Connack:
    return Connack(session_present, 0, {})


WRONG: dict[str, list[Packet]] = {
    "repeated without DUP": [connack(True), publish(2), publish(2)],
    "packet identifiers": [connack(True), publish(2), publish(3, dup=True)],
    "DUP in a new session": [connack(False), publish(2, dup=True)],
    "lost the session by itself": [connack(False), connack(False)],
    "after its PUBREL": [connack(True), publish(2), Pubrec(2), Pubrel(2), publish(2, dup=True)],
}


@pytest.mark.parametrize("told", WRONG)
def test_the_witness_sees_what_a_device_may_not_do(told: str) -> None:
    witness = Witness("one")
    for packet in WRONG[told]:
        witness.hear("connection", not isinstance(packet, (Connack, Pubrec)), encode(packet))
    assert len(witness.violations) == 1
    assert told in witness.violations[0]


def test_the_witness_tells_a_command_that_the_broker_began_anew() -> None:
    witness = Witness("one")
    for packet in (Publish("commands/one", b"commands/one 5", 2, False, False, 9, {}), Pubrel(9)):
        witness.hear("connection", False, encode(packet))
    assert not witness.begun_anew
    witness.hear("another", False, encode(Publish("commands/one", b"commands/one 5", 2, False, True, 9, {})))
    assert witness.begun_anew == {"commands/one 5"}
    assert not witness.violations
