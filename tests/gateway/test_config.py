"""The configuration file: what is wrong is said with file, key and what was expected."""

from pathlib import Path

import pytest

from gateway.config import GatewayConfig, SerialConfig, StoreConfig, TcpConfig, load
from gateway.errors import ConfigError

MINIMAL = 'name = "garage"\n[store]\npath = "store"\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "gateway.toml"
    path.write_text(text)
    return path


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    text = """
        name = "garage"
        [store]
        path = "/var/lib/holdfast"
        commit_interval_ms = 20
        [[listener]]
        kind = "tcp"
        host = "0.0.0.0"
        port = 1884
        allow_anonymous = true
        [[listener]]
        kind = "serial"
        device = "/dev/ttyUSB0"
        baud = 921600
        [[route]]
        name = "central"
        anything = ["is", "the", "uplink's", "matter"]
    """
    config, routes = load(write(tmp_path, text))
    assert config == GatewayConfig(
        "garage",
        StoreConfig("/var/lib/holdfast", 20),
        [TcpConfig("0.0.0.0", 1884, True), SerialConfig("/dev/ttyUSB0", 921600)],
    )
    assert routes == [{"name": "central", "anything": ["is", "the", "uplink's", "matter"]}]


def test_a_relative_store_lies_beside_the_file(tmp_path: Path) -> None:
    config, routes = load(write(tmp_path, MINIMAL))
    assert config.store.path == str(tmp_path / "store")
    assert routes == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("colour = 3\n" + MINIMAL, "colour: unknown key"),
        (MINIMAL + "paht = 3\n", "store.paht: unknown key"),
        ('name = "garage"\n[store]\n', "store.path: missing"),
        ('[store]\npath = "store"\n', "name: missing"),
        ('name = ""\n[store]\npath = "store"\n', "name: Expected `str` of length >= 1"),
        (MINIMAL + "commit_interval_ms = -1\n", "store.commit_interval_ms: Expected `int` >= 0"),
        (
            MINIMAL + '[[listener]]\nkind = "udp"\n',
            'listener[0].kind: Invalid value \'udp\', expected "tcp" or "serial"',
        ),
        (MINIMAL + "[[listener]]\nport = 1\n", 'listener[0].kind: missing, expected "tcp" or "serial"'),
        (MINIMAL + '[[listener]]\nkind = "tcp"\nport = "1"\n', "listener[0].port: Expected `int`, got `str`"),
        (MINIMAL + '[[listener]]\nkind = "tcp"\nport = 70000\n', "listener[0].port: Expected `int` <= 65535"),
        (MINIMAL + '[[listener]]\nkind = "serial"\nbaud = 1\n', "listener[0].device: missing"),
        ("route = 3\n" + MINIMAL, "route: Expected `array`, got `int`"),
        ("name\n", "not TOML: Expected '=' after a key in a key/value pair (at line 1, column 5)"),
    ],
)
def test_what_is_wrong_is_named_with_its_file_and_key(tmp_path: Path, text: str, complaint: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value) == f"{path}: {complaint}"
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "gateway.local"])
def test_a_listener_that_is_not_loopback_needs_leave_in_words(tmp_path: Path, host: str) -> None:
    text = MINIMAL + f'[[listener]]\nkind = "tcp"\nhost = "{host}"\n'
    with pytest.raises(ConfigError, match=r"listener\[0\]: host .* is not loopback: set allow_anonymous = true"):
        load(write(tmp_path, text))
    load(write(tmp_path, text + "allow_anonymous = true\n"))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_a_loopback_listener_needs_none(tmp_path: Path, host: str) -> None:
    load(write(tmp_path, MINIMAL + f'[[listener]]\nkind = "tcp"\nhost = "{host}"\n'))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.toml: No such file"):
        load(tmp_path / "none.toml")
