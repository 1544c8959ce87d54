"""The torture of the flash store finds broken stores, and the store passes a sample of it."""

import json
from collections.abc import Callable

import pytest
import typer
from typer.testing import CliRunner

from tests.support.result_shape import faults_of
from tools.lab.torture.flash.command import flash
from tools.lab.torture.flash.images import fuzz
from tools.lab.torture.flash.model import IDENTIFIERS, KEYS, Broken, Model
from tools.lab.torture.flash.power import Life, Torture, torture_with_cuts
from tools.lab.torture.flash.rot import rot
from tools.lab.torture.flash.workload import SCENARIOS, Scenario, Workload, message_of

SAMPLE = 300  # `tox -e torture` runs 200,000 of each


def test_power_cuts_anywhere_and_in_the_recovery_break_no_promise(seed: int) -> None:
    torture = Torture()
    torture_with_cuts(torture, SAMPLE, seed)
    assert torture.violations == []
    assert torture.counts["cuts"] >= SAMPLE
    assert torture.counts["cuts_two_deep"] > SAMPLE // 3


LIVES = {
    "a torn id whose gap found no room": (Scenario(32, 512), 93),
    "a drop whose gap found no room": (Scenario(16, 512, "drop_oldest", goes_bad=True), 103),
    "an erase without its note": (Scenario(256, 4096, goes_bad=True), 100_026),
    "gaps that a relocation saves on the way": (Scenario(32, 512), 200_148),
    "a dropped message in a merged gap": (Scenario(32, 1024, "drop_oldest"), 139),
    "a dropped message in a merged gap, in small sectors": (Scenario(32, 512, "drop_oldest"), 139),
}
LONG_LIVES = (
    "an erase without its note",
    "gaps that a relocation saves on the way",
    "a dropped message in a merged gap",
    "a dropped message in a merged gap, in small sectors",
)


@pytest.mark.parametrize(
    ("scenario", "life"),
    [pytest.param(*life, id=name, marks=[pytest.mark.long] * (name in LONG_LIVES)) for name, life in LIVES.items()],
)
def test_a_life_that_once_broke_a_promise_keeps_it(scenario: Scenario, life: int) -> None:
    torture = Torture()
    Life(torture, scenario, life).run(10_000)
    assert torture.violations == []


def test_ruined_images_mount_or_are_refused_and_invent_nothing(seed: int) -> None:
    torture = Torture()
    fuzz(torture, SAMPLE, seed)
    assert torture.violations == []
    assert 0 < torture.counts["images_refused"] < torture.counts["images"] == SAMPLE


def test_a_flipped_bit_costs_its_record_and_a_dead_sector_its_own(seed: int) -> None:
    torture = Torture()
    rot(torture, SAMPLE, seed)
    assert torture.violations == []
    assert torture.counts["flipped_bits"] >= SAMPLE


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_workload_wraps_the_ring_and_reaches_what_it_is_for(scenario: Scenario, seed: int) -> None:
    work = Workload(scenario, seed)
    while len(work.model.done) < 300 or not (work.full or work.model.dropped):
        work.step()
    assert min(work.flash.erase_counts) >= 1
    assert work.model.received
    assert work.model.boot_id > 1
    assert bool(work.flash.bad_erases | work.flash.bad_programs) == scenario.goes_bad
    assert work.flash.violations == 0


def test_the_command_prints_what_it_did(seed: int) -> None:
    app = typer.Typer()
    app.command()(flash)
    arguments = ["--cuts", "90", "--images", "60", "--seed", str(seed), "--json"]
    result = CliRunner().invoke(app, arguments)
    report = json.loads(result.stdout.splitlines()[-1])
    assert faults_of(report, "torture") == report["violations"] == []
    assert report["cuts"] >= 90
    assert report["images"] == 60
    assert report["seed"] == seed
    assert result.exit_code == 0


def lose(model: Model) -> None:
    model.stored[model.last_id + 1] = message_of(model.last_id + 1, 5)
    model.last_id += 1


def invent(model: Model) -> None:
    model.stored.popitem()


def change(model: Model) -> None:
    message_id = min(model.stored)
    model.stored[message_id] = message_of(message_id + 1, 5)


def bring_back(model: Model) -> None:
    model.done.add(min(model.stored))


def forget_pubrec(model: Model) -> None:
    model.received ^= {min(model.stored)}


def forget_identifier(model: Model) -> None:
    model.remembered ^= {IDENTIFIERS[-1]}


def change_setting(model: Model) -> None:
    model.settings[KEYS[0]] = b"never set"


def repeat_boot(model: Model) -> None:
    model.boot_id += 1


def drop_silently(model: Model) -> None:
    model.dropped.add(model.last_id + 1)


def leave_out_silently(model: Model) -> None:
    model.last_id -= 1


BROKEN = {
    lose: "lost",
    invent: "invented",
    change: "invented",
    bring_back: "came back",
    forget_pubrec: "PUBREC",
    forget_identifier: "received",
    change_setting: "setting",
    repeat_boot: "boot_id",
    drop_silently: "no gap tells",
    leave_out_silently: "left out",
}


@pytest.mark.parametrize(("break_promise", "told"), BROKEN.items(), ids=lambda one: getattr(one, "__name__", ""))
def test_the_model_notices_a_broken_promise(break_promise: Callable[[Model], None], told: str, seed: int) -> None:
    work = Workload(SCENARIOS[0], seed)
    while len(work.model.stored) < 10 or work.model.acknowledged or work.log.gaps():
        work.step()
        work.flush()
    break_promise(work.model)
    with pytest.raises(Broken, match=told):
        work.mount()
