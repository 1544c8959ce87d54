"""`holdfast gateway check-config` and the start say what is wrong with a configuration, and where."""

import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from host.mounts import why_volatile
from tests.support.command import holdfast
from tests.tools.cli.gateway.running import Gateway, check, publish, refused, refused_start
from tests.tools.cli.gateway.test_full_disk import write_store
from tools.lab.testing.certificates import Authority


def test_a_fifo_in_a_files_place_ends_the_start_instead_of_keeping_it_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    Authority(tmp_path).server()
    for config, listener, key in (
        ('acl = "fifo"', "", "acl"),
        ('accounts = "fifo"', "", "accounts"),
        ("", '[listener.tls]\ncertificate = "server.pem"\nkey = "fifo"\n', "listener[0].tls.key"),
        (
            "",
            '[[route]]\nname = "up"\nbroker = "mqtt://b"\nuser = "u"\npassword_file = "fifo"\n',
            "route[0].password_file",
        ),
    ):
        path = Gateway(tmp_path, config, listener).path
        complaint = f": {key}: {tmp_path / 'fifo'}: expected a regular file"
        assert complaint in refused("gateway", "check-config", str(path))
    assert complaint in refused_start(path)


def test_check_config_says_that_a_configuration_is_right(tmp_path: Path) -> None:
    path = Gateway(tmp_path).path
    done = check("gateway", "check-config", str(path))
    assert (done.returncode, done.stdout) == (0, f"{path}: ok\n")
    assert not (tmp_path / "store").exists()


def test_check_config_reports_all_that_is_wrong_at_once(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("everything is allowed\nallow * publish a/#\nallow * fly a\n")
    (tmp_path / "accounts").write_text("bob without a password\nalice\n")
    (tmp_path / "accounts").chmod(0o600)
    (tmp_path / "in the way").touch()
    path = tmp_path / "gateway.toml"
    path.write_text(
        """name = 3
colour = "red"
accounts = "accounts"
acl = "rules"
[store]
path = "in the way/store"
commit_interval_ms = -1
[queue]
when_full = "never"
[[listener]]
kind = "tcp"
port = "x"
[[listener]]
kind = "udp"
[[listener]]
kind = "tcp"
tls = { certificate = "absent", key = "absent too" }
[[listener]]
kind = "unix"
path = "a"
[[listener]]
kind = "unix"
path = "a"
paht = "b"
[[listener]]
kind = "unix"
path = "a"
[[route]]
name = "up"
broker = "here"
filters = ["a/#/b", "#c"]
backoff_longest_ms = 1
password_file = "absent"
colour = "red"
[route.tls]
certificate = "absent"
ca = ""
[[route]]
name = "on"
broker = "mqtt://b"
user = "u"
password_file = "absent"
"""
    )
    expected = [
        f"{path}:1: name: expected text, got a number",
        f"{path}:2: colour: unknown key, expected one of name, ",
        f"{tmp_path}/accounts:1: ",
        f"{tmp_path}/accounts:2: ",
        f"{tmp_path}/rules:1: expected 'allow WHO ACTIONS WHAT'",
        f"{tmp_path}/rules:3: unknown action 'fly'",
        f"{path}:7: store.commit_interval_ms: expected a number of at least 0",
        f"{path}:9: queue.when_full: 'never', expected one of ",
        f"{path}:12: listener[0].port: expected a number, got text",
        f"{path}:14: listener[1].kind: Invalid value 'udp'",
        f"{path}:17: listener[2].tls.certificate: {tmp_path}/absent: No such file",
        f"{path}:17: listener[2].tls.key: {tmp_path}/absent too: No such file",
        f"{path}:24: listener[4].paht: unknown key",
        f"{path}:27: listener[5].path: '{tmp_path}/a': listener[3] listens there already",
        f"{path}:30: route[0].broker: 'here', expected mqtt://host",
        f"{path}:31: route[0].filters: 'a/#/b': ",
        f"{path}:31: route[0].filters: '#c': ",
        f"{path}:32: route[0].backoff_longest_ms: it is below backoff_shortest_ms",
        f"{path}:33: route[0].password_file: there is no user",
        f"{path}:34: route[0].colour: unknown key",
        f"{path}:35: route[0].tls.key: certificate and key go together",
        f"{path}:37: route[0].tls.ca: expected text that is not empty",
        f"{path}:42: route[1].password_file: {tmp_path}/absent: No such file",
    ]
    for command, said in (
        ("check-config", refused("gateway", "check-config", str(path))),
        ("run", refused_start(path)),
    ):
        lines = [line.removeprefix(f"holdfast gateway {command}: ") for line in said.splitlines()]
        assert [line[: len(start)] for line, start in zip(lines, expected, strict=True)] == expected


def test_a_store_that_cannot_be_used_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    gateway, folder = Gateway(tmp_path), tmp_path / "store"
    folder.touch()
    said = refused("gateway", "check-config", str(gateway.path))
    assert f"gateway.toml:6: store.path: {folder}: Not a directory" in said
    folder.unlink()
    tmp_path.chmod(0o500)
    without_rights = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    complaint = f"gateway.toml:6: store.path: {tmp_path}: Permission denied"
    try:
        done = check("gateway", "check-config", str(gateway.path), wrapper=without_rights)
        assert (done.returncode, complaint in done.stderr) == (2, True)
        # A disk that is mounted later may permit it.
        assert complaint in refused_start(gateway.path, wrapper=without_rights, code=1)
    finally:
        tmp_path.chmod(0o700)


def test_check_config_says_that_a_gateway_runs_on_the_store_and_leaves_it_alone(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    with gateway.running():
        done = holdfast("gateway", "check-config", "--config", str(gateway.path))
        assert (done.exit_code, done.stdout) == (0, f"{gateway.path}: ok\n")
        assert f"note: a gateway runs on {tmp_path / 'store'}" in done.stderr
        assert publish(gateway.port) == 0
    done = holdfast("gateway", "check-config", str(gateway.path))
    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("listener", "complaint", "code"),
    [
        (
            'kind = "tcp"\nhost = "192.0.2.1"\nallow_anonymous = true',
            "host: '192.0.2.1': Cannot assign requested",
            None,
        ),
        ('kind = "unix"\npath = "absent/socket"', "path: {folder}/absent: No such file or directory", 1),
        (f'kind = "unix"\npath = "{"x" * 120}"', "bytes long, expected at most 107", None),
        ('kind = "unix"\npath = "."', "it is there already, and is no socket", None),
        (
            'kind = "unix"\npath = "gateway.toml"',
            "path: {folder}/gateway.toml: it is there already, and is no socket",
            2,
        ),
    ],
)
def test_check_config_and_the_start_see_where_a_listener_cannot_listen(
    tmp_path: Path, listener: str, complaint: str, code: int | None
) -> None:
    """The start reads the file as check-config does: each exit code of it is tried once."""
    path = Gateway(tmp_path, listener=f"[[listener]]\n{listener}\n").path
    before = sorted(tmp_path.iterdir())
    told = [refused("gateway", "check-config", str(path))]
    if code is not None:
        told.append(json.loads(refused_start(path, code=code).splitlines()[-1])["reason"])
    for said in told:
        assert "listener[1]." in said and complaint.format(folder=tmp_path) in said
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("harm", "complaint"),
    [
        (lambda file: file.unlink(), "it is missing, and there was a store"),
        (lambda file: file.write_bytes(b"no database" * 1000), "file is not a database"),
        (lambda file: file.write_bytes(bytes(4096) + file.read_bytes()[4096:]), "file is not a database"),
    ],
)
def test_check_config_sees_a_store_that_no_gateway_starts_on_and_leaves_it_as_it_is(
    tmp_path: Path, harm: Callable[[Path], None], complaint: str
) -> None:
    gateway, store = Gateway(tmp_path), tmp_path / "store"
    write_store(store)
    before = {file: file.read_bytes() for file in store.iterdir()}
    assert holdfast("gateway", "check-config", str(gateway.path)).exit_code == 0
    assert {file: file.read_bytes() for file in store.iterdir()} == before
    harm(store / "messages.sqlite")
    before = {file: file.read_bytes() for file in store.iterdir()}
    said = refused("gateway", "check-config", str(gateway.path))
    assert complaint in said and "`holdfast gateway repair`" in said
    assert {file: file.read_bytes() for file in store.iterdir()} == before


def test_a_store_in_memory_is_refused_until_the_configuration_says_that_it_may_be_lost(tmp_path: Path) -> None:
    memory = Path("/dev/shm")
    if not why_volatile(memory):
        pytest.skip("/dev/shm is no file system in memory")
    path = tmp_path / "gateway.toml"
    path.write_text(f'name = "garage"\n[store]\npath = "{memory}/absent/holdfast"\n')
    why = "/dev/shm/absent/holdfast: on tmpfs: it is in memory, which a restart of the machine empties"
    for said in (refused("gateway", "check-config", str(path)), refused_start(path)):
        assert f"{path}:3: store.path: {why}. " in said and "volatile = true in [store]" in said
    path.write_text(path.read_text() + "volatile = true\n")
    done = holdfast("gateway", "check-config", str(path))
    assert (done.exit_code, done.stdout) == (0, f"{path}: ok\n")
    assert "warning: no client can connect: there is no [[listener]]" in done.stderr


def test_values_of_units_that_every_client_may_set_are_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(
        'name = "garage"\nstore.path = "store"\n[[connector]]\nkind = "modbus_rtu"\nname = "hall"\nport = "/dev/hall"\n'
        '[[connector.unit]]\ndevice = "boiler"\n'
        'value = [{ name = "setpoint", address = 1, write = true, min = 0, max = 9 }]\n'
    )
    warning = "warning: every client may set values of a unit: connector hall: there are no access rules (acl)"
    assert warning in holdfast("gateway", "check-config", str(path)).stderr
    (tmp_path / "rules").write_text("allow operator publish commands/boiler\n")
    path.write_text('acl = "rules"\n' + path.read_text())
    assert warning not in holdfast("gateway", "check-config", str(path)).stderr


def test_the_store_of_a_stream_in_memory_is_refused_too(tmp_path: Path) -> None:
    if not why_volatile(Path("/dev/shm")):
        pytest.skip("/dev/shm is no file system in memory")
    path = tmp_path / "gateway.toml"
    path.write_text('name = "garage"\nstore.path = "store"\n[[stream]]\nname = "plant"\npath = "/dev/shm/absent"\n')
    assert f"{path}:5: stream[0].path: /dev/shm/absent: on tmpfs: " in refused("gateway", "check-config", str(path))


@pytest.mark.parametrize(
    ("hours", "event", "when"),
    [(-1, "a broker refuses a route's certificate", "since"), (1, "a certificate ends soon", "from 20")],
)
def test_a_routes_certificate_that_is_out_of_date_or_soon_will_be_is_warned_of(
    tmp_path: Path, hours: int, event: str, when: str
) -> None:
    authority = Authority(tmp_path / "certificates")
    certificate, key = authority.sign("route", ["route"], life=timedelta(hours=hours))
    path = tmp_path / "gateway.toml"
    path.write_text(
        f'name = "garage"\n[store]\npath = "{tmp_path}/store"\nvolatile = true\n[[route]]\n'
        f'name = "up"\nbroker = "mqtts://b"\n'
        f'[route.tls]\ncertificate = "{certificate}"\nkey = "{key}"\n'
    )
    done = holdfast("gateway", "check-config", str(path))
    assert (done.exit_code, done.stdout) == (0, f"{path}: ok\n")
    assert f"warning: {event}: {certificate}: out of date {when}" in done.stderr


def test_a_mosquitto_conf_is_known_for_one(tmp_path: Path) -> None:
    path = tmp_path / "mosquitto.conf"
    path.write_text("# Debian's\npid_file /run/mosquitto/mosquitto.pid\n\npersistence true\nlistener 1883\n")
    said = refused("gateway", "check-config", str(path))
    assert f"{path}: a mosquitto.conf: docs/how-to/mosquitto.md " in said
    path.write_text("persistence true\n[store]\npath = 'a'\n")
    assert ":1: not TOML" in refused("gateway", "check-config", str(path))


@pytest.mark.parametrize(
    ("config", "listener", "complaint"),
    [
        ('accounts = "absent"', "", "gateway.toml:2: accounts: "),
        ("", 'tls = { certificate = "rules", key = "rules" }', "gateway.toml:11: listener[0].tls: "),
        ("", 'tls = { certificate = "a", key = "b", user_from = "dns" }', "11: listener[0].tls.user_from: there is no"),
        (
            "",
            '[[route]]\nname = "up"\nbroker = "mqtts://b"\n[route.tls]\nca = "rules"\n',
            "gateway.toml:14: route[0].tls: ",
        ),
    ],
)
def test_check_config_names_what_is_wrong_and_where(tmp_path: Path, config: str, listener: str, complaint: str) -> None:
    (tmp_path / "rules").write_text("everything is allowed\n")
    path = Gateway(tmp_path, config, listener).path
    said = refused("gateway", "check-config", str(path))
    assert said.startswith("holdfast gateway check-config: ") and complaint in said
