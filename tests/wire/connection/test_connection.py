"""Both ends of a connection together, and both under noise."""

import pytest

from tests.wire.connection.conversation import converse
from tests.wire.golden import VERSIONS
from tools.lab.sim.virtual_line import Dice
from tools.lab.torture.wire import mqtt_noise
from wire.codec.packets import MQTT_3_1_1, MQTT_5


@pytest.mark.parametrize("level", [MQTT_3_1_1, MQTT_5])
def test_messages_arrive_in_order_and_are_acknowledged_over_a_splitting_path(level: int, seed: int) -> None:
    for run in range(25):
        converse(seed + run, 150, level)


def test_noise_gives_only_documented_events_and_the_same_in_any_pieces(seed: int) -> None:
    dice = Dice(seed)
    golden = {level: [row[2] for table in tables for row in table] for level, *tables in VERSIONS}
    fed = 0
    while fed < 200_000:  # `torture wire` feeds much more
        fed += mqtt_noise.check(dice, golden)
