"""A sample of the torture of a gateway, and proof that it notices faults."""

import json

import pytest
import typer
from typer.testing import CliRunner

from tests.support.result_shape import faults_of
from tools.lab.sim.virtual_line import Dice
from tools.lab.torture.broker.command import broker
from tools.lab.torture.broker.oracle import Heard, expect, faults
from tools.lab.torture.broker.packets import FOR_EVER_S, Pools
from tools.lab.torture.broker.run import Outcome
from tools.lab.torture.broker.session import NUMBERS, client_of, draw, mutated
from wire import properties as p
from wire.codec.packets import MQTT_3_1_1, Auth, Connect, Disconnect, Publish, Will, encode
from wire.packet_types import PUBACK, PUBREC

app = typer.Typer()
app.command()(broker)

CONNECT = encode(Connect("c", True, 60))
OLD_CONNECT = encode(Connect("c", True, 60, protocol_level=MQTT_3_1_1))
PUBLISH = encode(Publish("a", b"", 1, packet_identifier=7))


def test_a_storm_of_corrupt_sessions_changes_neither_the_gateway_nor_ordinary_clients(seed: int) -> None:
    result = CliRunner().invoke(app, ["--packets", "40000", "--seed", str(seed), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout.splitlines()[-1])
    assert report["packets"] >= 40_000
    assert report["witnessed"] > 0 and report["sessions"] > 0
    assert faults_of(report, "torture") == []
    assert (report["seed"], report["violations"], report["holds"]) == (seed, [], True)


def test_a_session_can_be_played_alone(seed: int) -> None:
    result = CliRunner().invoke(app, ["--session", "3", "--seed", str(seed)])
    assert result.exit_code == 0, result.output
    assert result.stdout == f"session 3 of seed {seed} is answered as it has to be\n"


def test_the_same_seed_and_number_are_the_same_session(seed: int) -> None:
    for number in (0, 5, NUMBERS + 7, NUMBERS // 2):
        assert draw(Pools(seed), seed, number) == draw(Pools(seed), seed, number)
    assert draw(Pools(seed), seed, 1) != draw(Pools(seed), seed, 2)


def test_two_generators_take_no_session_of_each_other_over() -> None:
    one, other = ({client_of("tcp", first + number) for number in range(1000)} for first in (0, NUMBERS))
    assert one.isdisjoint(other)


def test_packets_are_drawn_well_formed_and_corrupted_afterwards(seed: int) -> None:
    pools, dice = Pools(seed), Dice(seed)
    for level, connect in ((5, CONNECT), (4, OLD_CONNECT)):
        packets = pools.packets(dice, level, 500)
        assert not expect(connect + b"".join(packets)).closes
        closed = sum(expect(connect + b"".join(mutated(dice, packets[:50], packets))).closes for _ in range(50))
        assert 10 < closed < 50


def test_packets_of_which_nothing_is_left_are_corrupted_further(seed: int) -> None:
    dice = Dice(seed)
    for _ in range(2_000):
        mutated(dice, [b"", b"\xc0"], [b""])


WRONG = {
    "a second CONNECT": (CONNECT + CONNECT, 0x82),
    "flags": (CONNECT + b"\xc1\x00", 0x81),
    "256 MB": (CONNECT + b"\x30\xff\xff\xff\x7f", 0x95),
    "not UTF-8": (CONNECT + bytes.fromhex("30080001610201017aff"), 0x99),
    "an unknown alias": (CONNECT + bytes.fromhex("3006000003230001"), 0x82),
}


@pytest.mark.parametrize("fault", WRONG)
def test_what_breaks_the_protocol_has_its_reason_code(fault: str) -> None:
    data, code = WRONG[fault]
    expected = expect(data)
    assert (expected.connack, expected.closes, expected.disconnect) == (0, True, code)
    assert faults(expected, Heard(0, disconnect=code), True, False) == []
    assert faults(expected, Heard(0, disconnect=code), False, False) == ["the connection was not closed"]
    (said,) = faults(expected, Heard(0), True, False)
    assert said == f"DISCONNECT none, expected 0x{code:02x}"


def test_a_good_session_has_every_acknowledgement() -> None:
    expected = expect(CONNECT + PUBLISH + encode(Publish("a", b"", 2, packet_identifier=8)))
    assert not expected.closes and expected.is_whole
    assert expected.answers == {(PUBACK, 7), (PUBREC, 8)}
    assert faults(expected, Heard(0, answers={(PUBACK, 7), (PUBREC, 8), (PUBACK, 9)}), True, False) == []
    (said,) = faults(expected, Heard(0, answers={(PUBACK, 7)}), True, False)
    assert said == "unanswered, as (packet type, packet identifier): [(5, 8)]"
    assert faults(expected, Heard(0, disconnect=0x82, answers=expected.answers), True, False)
    assert faults(expected, Heard(None, nonsense="?"), True, False) == ["the broker sent nonsense: ?"]


def test_what_depends_on_the_moment_is_let_pass() -> None:
    twice = expect(CONNECT + PUBLISH + PUBLISH)
    assert faults(twice, Heard(0, disconnect=0x82), True, False) == []
    assert faults(twice, Heard(0, disconnect=0x81), True, False)
    once = expect(CONNECT + PUBLISH)
    assert faults(once, Heard(0, disconnect=0x8E), True, is_shared=True) == []
    assert faults(once, Heard(0, disconnect=0x8E), True, is_shared=False)
    resumed = Heard(0, session_present=True, disconnect=0x82)
    assert faults(once, resumed, True, False) == []


def test_a_refused_client_gets_a_reason_code_of_its_version() -> None:
    reserved = Will("$SYS/x", b"")
    assert expect(encode(Connect("c", True, 60, will=reserved))).connack == 0x87
    old = expect(encode(Connect("c", True, 60, will=reserved, protocol_level=MQTT_3_1_1)))
    assert (old.closes, old.connack, old.level) == (True, 0x87, MQTT_3_1_1)
    assert expect(OLD_CONNECT + bytes.fromhex("8206000100016103")).disconnect is None
    assert expect(CONNECT + encode(Disconnect())).closes
    assert expect(CONNECT + encode(Auth(0x19, {}))).disconnect == 0x82


def test_a_client_that_cannot_be_told_of_its_shorter_session_is_refused() -> None:
    for largest, code in ((20, 0x95), (21, 0)):
        asked = {p.SESSION_EXPIRY_INTERVAL: FOR_EVER_S, p.MAXIMUM_PACKET_SIZE: largest}
        expected = expect(encode(Connect("c", True, 60, properties=asked)))
        assert (expected.connack, expected.closes) == (code, code != 0)


def test_each_kind_of_damage_is_a_failure() -> None:
    assert Outcome(packets=1).holds
    for broken in ({"leaks": {"tasks": 1}}, {"failures": [(1, "x")]}, {"violations": ["x"]}):
        assert not Outcome(**broken).holds
