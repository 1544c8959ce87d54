"""A sample of the torture of networks, and proof that it notices what goes wrong."""

import json
import random
from collections import Counter
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.support.result_shape import faults_of
from tools.lab.torture.network.command import network
from tools.lab.torture.network.faults import FAULTS, possible
from tools.lab.torture.network.foreign import judge as judge_foreign
from tools.lab.torture.network.oracle import NetworkOutcome, judge
from tools.lab.torture.network.plan import CITY, PASSIVE, Link, Plan
from tools.lab.torture.network.run import drawn
from tools.lab.torture.network.site import Gap, Network
from tools.lab.torture.network.subscriber import Came, Subscriber
from tools.lab.torture.publisher import EPOCH, MARKERS, Publisher

app = typer.Typer()
app.command()(network)
CHAIN = Plan(3, [Link(0, 1), Link(2, 1)])


def reported(*arguments: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    return result.exit_code, json.loads(result.stdout.splitlines()[-1])


def test_a_message_has_a_way_to_each_gateway_of_a_tree() -> None:
    first, second = CHAIN.links
    assert CHAIN.ways(0) == {0: [], 1: [first], 2: [first, second]}


def test_what_came_over_a_link_of_a_one_hop_zone_leaves_over_none_of_its_links() -> None:
    first, second, other = Link(1, 0, CITY), Link(1, 2, CITY), Link(1, 3)
    plan = Plan(4, [first, second, other])
    assert plan.ways(0) == {0: [], 1: [first], 3: [first, other]}
    assert plan.ways(1).keys() == {0, 1, 2, 3}
    assert plan.ways(3) == {3: [], 1: [other], 0: [other, first], 2: [other, second]}


def test_an_ordinary_broker_is_a_way_too() -> None:
    plan = Plan(3, [Link(0, 1)], (1, 2))
    assert plan.ways(0)[2] == [*plan.links, None]


def test_an_added_link_closes_a_circle_and_is_no_way() -> None:
    plan = Plan(3, [*CHAIN.links, Link(0, 2, is_added=True)])
    assert plan.circle() == CHAIN.links
    assert plan.ways(0) == CHAIN.ways(0)


def test_a_network_gets_only_faults_that_it_can_have() -> None:
    assert not {"failover", "circle", "restart"} & set(possible(CHAIN, list(FAULTS)))
    plan = Plan(4, [Link(0, 1, is_double=True), Link(0, 2), Link(1, 2, is_added=True)], (2, 3))
    assert possible(plan, list(FAULTS)) == list(FAULTS)


def test_a_seed_gives_the_same_network_and_faults_each_time(seed: int) -> None:
    once, again = (drawn(seed, 20, 1500, list(FAULTS), has_broker=True) for _ in range(2))
    assert once == again
    assert [strike.at for strike in once[1]] == sorted(strike.at for strike in once[1])


def test_all_that_a_network_can_have_is_drawn() -> None:
    plans = [drawn(seed, 1, 100, list(FAULTS), has_broker=True)[0] for seed in range(200)]
    links = [link for plan in plans for link in plan.links]
    assert any(plan.between for plan in plans) and any(plan.circle() for plan in plans)
    assert {link.zone for link in links} > {CITY} and {link.mode for link in links} > {PASSIVE}
    assert {link.is_double for link in links} == {True, False}


def test_every_fault_says_what_it_does() -> None:
    assert all(fault.__doc__ for fault in FAULTS.values())


def test_a_fault_that_there_is_not_is_named() -> None:
    result = CliRunner().invoke(app, ["--fault", "flood"])
    assert result.exit_code == 2
    assert all(name in result.output.replace("\n", "") for name in ("flood", "failover"))


class Judged:
    """A chain of three in which p0 published five messages at gateway 0, and a durable subscriber at 2 got some."""

    def __init__(self, folder: Path, plan: Plan = CHAIN, qos: int = 2) -> None:
        self.site = Network(folder, plan, 10, random.Random(0))
        for gateway in self.site.gateways:
            (folder / gateway.name / "gateway.log").write_text("")
        self.publisher = Publisher("p0", 0, qos, 5)
        self.publisher.accepted = [1, 2, 3, 4, 5]
        self.site.publishers, self.site.at = [self.publisher], {"p0": 0}
        self.subscriber = Subscriber("s0", 2, 0, ["torture/#", f"{MARKERS}/#"], qos, is_durable=True)
        self.subscriber.since = {"p0": 1}
        self.site.subscribers = [self.subscriber]

    def outcome(self, numbers: list[int], *gaps: Gap, **had: Any) -> NetworkOutcome:
        """Returns what comes of it when these numbers came."""
        changed = {"origin": "p0", "epoch": EPOCH, "topic": "torture/p0", "is_dup": False, **had}
        self.subscriber.came = [Came(number=number, **changed) for number in numbers]
        outcome = NetworkOutcome()
        outcome.violations += judge(outcome, self.site, list(gaps))
        return outcome


def test_what_is_missing_twice_or_overtaken_is_counted_and_named(tmp_path: Path) -> None:
    outcome = Judged(tmp_path).outcome([2, 1, 3, 3, 5])
    assert (outcome.messages, outcome.lost, outcome.twice, outcome.disorder, outcome.holds) == (5, 1, 1, 1, False)
    where = "of p0 at s0 (QoS 2 to 2, durable, g0-to-g1, g2-to-g1)"
    assert outcome.violations == [f"1 {where} lost: 4", f"1 {where} twice: 3", f"1 {where} overtaken: 1"]


def test_it_holds_when_all_came_once_in_order(tmp_path: Path) -> None:
    assert Judged(tmp_path).outcome([1, 2, 3, 4, 5]).holds


def test_a_message_is_lost_also_if_a_range_has_it_where_no_link_may_drop(tmp_path: Path) -> None:
    outcome = Judged(tmp_path).outcome([1, 2, 3, 5], Gap("evicted", "p0", 4, 4))
    assert (outcome.lost, outcome.untyped) == (1, 0)


def test_over_an_active_passive_link_a_message_may_be_missing_that_a_range_has(tmp_path: Path) -> None:
    plan = Plan(3, [Link(0, 1), Link(2, 1, mode=PASSIVE)])
    outcome = Judged(tmp_path, plan).outcome([1, 5], Gap("unrouted", "p0", 2, 3))
    assert (outcome.lost, outcome.typed, outcome.untyped, outcome.holds) == (0, 2, 1, False)
    assert outcome.violations == ["1 of p0 at s0 (QoS 2 to 2, durable, g0-to-g1, g2-to-g1) missing without a range: 4"]


def test_what_was_sent_before_the_interest_was_known_need_not_come(tmp_path: Path) -> None:
    judged = Judged(tmp_path)
    judged.subscriber.since = {"p0": 4}
    assert judged.outcome([4, 5]).holds
    assert judged.outcome([2, 4, 5]).holds


def test_of_a_subscription_that_is_over_what_was_under_way_need_not_come(tmp_path: Path) -> None:
    judged = Judged(tmp_path)
    judged.subscriber.end()
    assert judged.outcome([1, 2, 3]).holds
    assert judged.outcome([1, 3]).lost == 1


def test_a_message_that_is_not_for_a_subscriber_is_found(tmp_path: Path) -> None:
    judged = Judged(tmp_path)
    judged.subscriber.filters = ["torture/p1"]
    assert judged.outcome([1]).foreign == 1


@pytest.mark.parametrize("changed", [{"epoch": 8}, {"topic": "torture/p1"}])
def test_a_message_with_another_identity_or_topic_name_is_found(tmp_path: Path, changed: dict[str, Any]) -> None:
    assert Judged(tmp_path).outcome([1, 2, 3, 4, 5], **changed).foreign == 5


def test_a_message_comes_again_at_qos_1_where_that_is_allowed(tmp_path: Path) -> None:
    judged = Judged(tmp_path, qos=1)
    assert judged.outcome([1, 2, 2, 3, 4, 5]).twice == 1
    assert judged.outcome([1, 2, 2, 3, 4, 5], is_dup=True).marked == 1
    judged.publisher.repeated = {2}
    assert judged.outcome([1, 2, 2, 3, 4, 5]).holds


def test_a_message_that_overtakes_another_in_a_mosquitto_is_no_disorder(tmp_path: Path) -> None:
    assert Judged(tmp_path, Plan(3, [Link(0, 1)], (1, 2))).outcome([1, 2, 5, 3, 4]).holds


def test_a_message_that_overtakes_another_when_a_circle_has_changed_the_way_is_told_and_no_disorder(
    tmp_path: Path,
) -> None:
    judged = Judged(tmp_path)
    judged.site.has_changed_ways = True
    outcome = judged.outcome([1, 2, 5, 3, 4])
    assert (outcome.holds, outcome.disorder, outcome.rerouted) == (True, 0, 2)


def test_a_traceback_in_a_gateways_log_is_a_violation(tmp_path: Path) -> None:
    judged = Judged(tmp_path)
    (tmp_path / "g1" / "gateway.log").write_text("Traceback (most recent call last):\nOSError: disk I/O error\n")
    assert judged.outcome([1, 2, 3, 4, 5]).violations == [
        "the gateway's log: Traceback (most recent call last): OSError: disk I/O error"
    ]


@pytest.mark.parametrize("options", [["--no-broker"], ["--fault", "circle", "--no-broker"]])
def test_nothing_is_lost_or_there_twice_over_faults_of_a_network(options: list[str], seed: int) -> None:
    code, report = reported("--runs", "1", "--messages", "300", "--faults", "5", "--seed", str(seed), *options)
    assert faults_of(report, "torture") == []
    assert (code, report["violations"], report["holds"]) == (0, [], True)


@pytest.mark.skipif(which("nats-server") is None, reason="needs nats-server")
def test_nothing_is_lost_or_there_twice_over_nats_while_gateways_and_server_are_killed(seed: int) -> None:
    options = ["--over", "nats", "--runs", "1", "--messages", "300", "--faults", "3", "--seed", str(seed)]
    code, report = reported(*options)
    assert faults_of(report, "torture") == []
    assert (code, report["violations"], report["messages"], report["lost"], report["twice"]) == (0, [], 300, 0, 0)


def test_a_message_that_is_lost_or_there_twice_over_a_foreign_system_is_told() -> None:
    publisher = Publisher("p0", 1, 1, 3)
    publisher.accepted = [1, 2, 3]
    outcome, violations = NetworkOutcome(), list[str]()
    came = Counter({publisher.payload(1).decode(): 1, publisher.payload(3).decode(): 2})
    judge_foreign(outcome, [publisher], came, violations)
    assert (outcome.messages, outcome.lost, outcome.twice) == (3, 1, 1)
    assert violations == ["1 of p0 lost: 2", "1 of p0 twice: 3"]
