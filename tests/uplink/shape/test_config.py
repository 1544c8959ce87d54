"""The rules in the configuration, and what it says about rules that cannot be meant."""

import re
from pathlib import Path

import pytest

from host.errors import ConfigError
from tests.house.repository import ROOT
from tools.cli.gateway.config import read_configuration

PAGE = (ROOT / "docs/how-to/shape-a-route.md").read_text()
ROUTE = 'name = "site-1"\nstore.path = "store"\n[[route]]\nname = "central"\nbroker = "mqtt://central"\n'


def written(folder: Path, rules: str) -> Path:
    file = folder / "gateway.toml"
    file.write_text(ROUTE + rules)
    return file


def test_a_route_has_its_rules_in_their_order(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        '[[route.shape]]\nfilter = "a/#"\ntopic = "plant/{gateway}/{2-}"\nmax_qos = 1\nretain = "clear"\n'
        '[[route.shape]]\nwhere = "json.v > 3"\nevery = 10\ndead_band = 1\nfield = "v"\nheartbeat_s = 60\n',
    )
    (route,) = read_configuration(file).routes
    first, second = route.shape
    assert (first.filter, first.topic, first.max_qos, first.retain) == ("a/#", "plant/{gateway}/{2-}", 1, "clear")
    assert (second.filter, second.where, second.every, second.dead_band, second.heartbeat_s) == (
        "#",
        "json.v > 3",
        10,
        1,
        60,
    )


@pytest.mark.parametrize(
    ("rule", "key", "what"),
    [
        ("max_qos = 0", "max_qos", "expected 1 or 2: the broker does not acknowledge messages of QoS 0"),
        ("max_qos = 3", "max_qos", "expected 1 or 2"),
        ('filter = "a/#/b"', "filter", "# must be the last level"),
        ('filter = "$share/g/a"', "filter", "without $share"),
        ('topic = "a/#"', "topic", "which has no + and no #"),
        ('topic = "{level}"', "topic", "expected {topic}"),
        ('topic = ""', "topic", "not empty"),
        ('where = "json.v == 3"', "where", "character 9: expected a field, a number"),
        ('where = "json.a[0] > 3"', "where", "character 7: unexpected '['"),
        ("every = 0", "every", "at least 1"),
        ("dead_band = 0", "dead_band", "expected a number above 0"),
        ("dead_band = inf", "dead_band", "expected a number above 0"),
        ("dead_band = nan", "dead_band", "expected a number above 0"),
        ('dead_band = 1\nfield = "a..b"', "field", "expected names joined by dots"),
        ('field = "a"', "field", "it needs dead_band"),
        ("heartbeat_s = 3", "heartbeat_s", "it needs dead_band"),
        ('retain = "set"', "retain", "expected one of 'clear', 'keep'"),
        ("qos = 1", "qos", "unknown key"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_an_error_at_its_key(tmp_path: Path, rule: str, key: str, what: str) -> None:
    file = written(tmp_path, f"[[route.shape]]\nevery = 2\n[[route.shape]]\n{rule}\n")
    with pytest.raises(ConfigError) as refused:
        read_configuration(file)
    assert f"route[0].shape[1].{key}: " in str(refused.value) and what in str(refused.value)


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL))
def test_the_examples_of_the_page_are_rules(tmp_path: Path, text: str) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(f'name = "site-1"\nstore.path = "store"\n\n{text}')
    (route,) = read_configuration(file).routes
    assert route.shape
