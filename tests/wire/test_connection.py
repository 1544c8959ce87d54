"""Both ends of a connection together, and both under noise."""

from tests.wire.conversation import converse
from tests.wire.fuzz import check_connections
from tests.wire.link_world import Dice


def test_messages_arrive_in_order_and_are_acknowledged_over_a_splitting_path(seed: int) -> None:
    for run in range(30):
        converse(seed + run, steps=150)


def test_noise_gives_only_documented_events_and_the_same_in_any_pieces(seed: int) -> None:
    dice = Dice(seed)
    fed = 0
    while fed < 300_000:
        fed += check_connections(dice)
