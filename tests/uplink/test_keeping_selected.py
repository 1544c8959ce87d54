"""A route with rules that keeps until receipts: what it left out on purpose is not kept, and does not go again."""

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.store.support import stored
from tests.uplink.support import route_config, until
from tests.uplink.test_keeping import Site, payloads_in, site
from uplink.shape import ShapeConfig

ODD = {"shape": (ShapeConfig(filter="a", every=2),)}
RULES: dict[str, dict[str, Any]] = {
    "every": ODD,
    "where": {"shape": (ShapeConfig(filter="a", where="json IN (1, 3, 5, 7, 9)"),)},
    "dead band": {"shape": (ShapeConfig(filter="a", dead_band=2.0),)},
    "batches": {**ODD, "framing": "batch", "batch_max_age_ms": 1},
    "two lanes": {**ODD, "order": "live_first"},
}
"""Rules that send 1, 3, 5, 7 and 9."""


async def pass_over(one: Site, numbers: range, later: range) -> None:
    """The device publishes messages, and long enough after their acknowledgement later ones."""
    await one.publish(numbers)
    await one.look()
    await one.look(100)
    await one.publish(later)
    await one.look(20)


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES.keys())
async def test_what_rules_leave_out_is_not_waited_for_and_does_not_go_again(
    rules: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, monkeypatch, resend_after_s=100, **rules) as one:
        await pass_over(one, range(1, 9), range(9, 10))
        await one.settle_numbers({1, 3, 7, *range(9, one.log.head + 1)})
        await one.look()
        await until(lambda: one.count(5) >= 1 and one.route.queue.state.unproven_sent == 1)
        await one.settle_numbers({1, 3, 5, 7, *range(9, one.log.head + 1)})
        await one.look()
        for _ in range(10):
            await one.look(100)
        assert not one.keeping.is_due.is_set
        assert one.route.queue.state.unproven_sent == 1
        assert one.keeping.kept.position >= 9
        assert not any(one.has(number) for number in (2, 4, 6, 8))
    assert set(payloads_in(tmp_path)) <= {b"9"}
    assert stored(tmp_path, "SELECT count(*) FROM unsent")[0][0] <= 1


async def test_other_rules_after_a_restart_change_neither_what_was_left_out_nor_what_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, monkeypatch, resend_after_s=100, **ODD) as one:
        await pass_over(one, range(1, 7), range(7, 8))
        await one.settle_numbers({1, 5})
    even = {"shape": (ShapeConfig(filter="a", where="json IN (2, 4, 6, 8, 10)"),)}
    async with site(tmp_path, monkeypatch, resend_after_s=100, **even) as one:
        await pass_over(one, range(8, 9), range(9, 11))
        head = one.log.head
        await one.settle_numbers({1, 5, 7, *range(8, head + 1)})
        await one.look()
        await until(lambda: one.has(3))
        await one.settle_numbers({1, 3, 5, 7, *range(8, head + 1)})
        await one.look(100)
        assert [number for number in range(1, 11) if one.has(number)] == [3, 8, 10]
        assert one.keeping.kept.position >= 8


async def test_what_a_limit_of_the_route_has_dropped_does_not_go_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, monkeypatch, resend_after_s=100, max_messages=2, inflight_window=1) as one:
        one.central.puback = lambda _: None
        for number in range(1, 7):
            await one.device.publish("a", b"%d" % number)
        await one.route.queue.watch.count()
        one.central.puback = lambda _: 0
        one.central.drop_clients()
        await pass_over(one, range(0), range(7, 8))
        sent = {number for number in range(1, 8) if one.has(number)}
        assert sent < set(range(1, 8)), "the limit has dropped none"
        await one.settle_numbers({*range(7, one.log.head + 1)})
        await one.look()
        await until(lambda: not one.keeping.is_due.is_set)
        assert {number for number in range(1, 8) if one.has(number)} == sent


@pytest.mark.parametrize(("interval_s", "resend_after_s", "expected_s"), [(600, None, 60), (600, 30, 10), (5, 30, 5)])
def test_a_route_that_waits_for_receipts_says_what_it_leaves_out_before_others_take_it_for_passed_over(
    interval_s: int, resend_after_s: int | None, expected_s: int
) -> None:
    keys = {"statement_interval_s": interval_s, "resend_after_s": resend_after_s}
    assert route_config(1, until="receipt", **keys).states_every_s == expected_s
    assert route_config(1, statement_interval_s=interval_s).states_every_s == interval_s
