"""The gateway's commands as an operator uses them: a process, its signals, its log, its metrics."""

import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from gateway.auth.accounts import delete_account, make_account, save_account
from host.mounts import is_in_memory
from tests.house.repository import ROOT
from tests.support.command import holdfast
from tests.tools.cli.gateway.running import LONG_S, Gateway, Watched, check, publish
from tests.tools.cli.gateway.test_full_disk import write_store
from tools.lab.testing.certificates import Authority
from tools.lab.testing.ports import free_port


def test_a_service_manager_is_told_that_it_is_ready_alive_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(LONG_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "20000")
        with Gateway(tmp_path).running() as process:
            assert [manager.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
            process.signal(signal.SIGTERM)
            while manager.recv(100) != b"STOPPING=1":
                pass
            assert process.ended(LONG_S)[0] == 0


def test_sighup_reads_accounts_again_and_sends_away_whose_account_is_gone(tmp_path: Path) -> None:
    accounts = tmp_path / "accounts"
    for name in ("alice", "bob"):
        save_account(accounts, make_account(name, b"secret", with_scram=False))
    gateway = Gateway(tmp_path, 'accounts = "accounts"')
    with gateway.running() as process:
        assert publish(gateway.port) == 0x87
        assert publish(gateway.port, "-u", "alice", "-P", "secret") == 0
        client = Client(CallbackAPIVersion.VERSION2, "bobs", protocol=MQTTProtocolVersion.MQTTv5)
        client.username_pw_set("bob", "secret")
        gone: list[object] = []
        client.on_disconnect = lambda client, _, flags, reason, properties: gone.append(reason.value)
        client.connect("127.0.0.1", gateway.port)
        while not client.is_connected():
            client.loop(0.1)
        delete_account(accounts, "bob")
        process.signal(signal.SIGHUP)
        while not gone:
            client.loop(0.1)
        assert gone == [0x98]
        assert publish(gateway.port, "-u", "bob", "-P", "secret") == 0x86
        assert publish(gateway.port, "-u", "alice", "-P", "secret") == 0


def test_what_cannot_be_read_again_stays_and_health_says_so(tmp_path: Path) -> None:
    accounts = tmp_path / "accounts"
    save_account(accounts, make_account("alice", b"secret", with_scram=False))
    authority = Authority(tmp_path)
    authority.server()
    gateway = Watched(
        tmp_path, 'accounts = "accounts"', '[listener.tls]\ncertificate = "server.pem"\nkey = "server.key"\n'
    )
    login = ("-u", "alice", "-P", "secret", "--cafile", str(authority.path))
    with gateway.running() as process:
        assert publish(gateway.port, *login) == 0
        assert gateway.get("/healthz") == (200, "ok\n")
        whole = accounts.read_text()
        accounts.write_text("alice without a password\n")
        process.signal(signal.SIGHUP)
        assert f"{accounts}:1: " in gateway.wait_for_event("stays as it was")["reason"]
        status, text = gateway.get("/healthz")
        assert status == 503 and f"{accounts}:1: " in text
        assert publish(gateway.port, *login) == 0
        accounts.write_text(whole)
        process.signal(signal.SIGHUP)
        gateway.wait_for_event("were read again")
        assert gateway.get("/healthz") == (200, "ok\n")


def test_sigterm_tells_clients_and_leaves_nothing_unsynced(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    with gateway.running() as process:
        client = Client(CallbackAPIVersion.VERSION2, "client", protocol=MQTTProtocolVersion.MQTTv5)
        acknowledged, gone = set(), []
        client.on_publish = lambda client, _, mid, *more: acknowledged.add(mid)
        client.on_disconnect = lambda client, _, flags, reason, properties: gone.append(reason.value)
        client.connect("127.0.0.1", gateway.port)
        while not client.is_connected():
            client.loop(0.1)
        for number in range(500):
            client.publish("a", str(number), qos=1)
        while not acknowledged:
            client.loop(0.1)
        process.signal(signal.SIGTERM)
        while not gone:
            client.loop(0.1)
        assert gone == [0x8B]
        assert process.ended(LONG_S)[0] == 0
        assert not list((tmp_path / "store").glob("*-wal"))  # the files are whole by themselves
        assert gateway.log()[-1]["level"] != "error"


def test_metrics_count_what_happens(tmp_path: Path) -> None:
    gateway = Watched(tmp_path)
    with gateway.running():
        assert publish(gateway.port, "-r") == 0
        status, text = gateway.get("/metrics")
        assert status == 200
        lines = set(text.splitlines())
        assert {"holdfast_connections_accepted_total 1.0", "holdfast_connections 0.0"} <= lines
        assert "holdfast_retained_messages 0.0" not in lines


def test_a_metrics_port_in_use_ends_the_start_with_its_address(tmp_path: Path) -> None:
    gateway = Watched(tmp_path)
    with socket.create_server(("127.0.0.1", gateway.metrics_port)):
        done = check("gateway", "run", "--config", str(gateway.path))
    assert done.returncode == 1
    assert f"metrics 127.0.0.1:{gateway.metrics_port}: " in done.stderr


def modes_in(folder: Path) -> dict[str, str]:
    """The permissions of a folder and of what is in it."""
    return {path.name: oct(path.stat().st_mode & 0o777) for path in (folder, *folder.iterdir())}


def test_the_store_is_its_owners_alone(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    with gateway.running():
        assert publish(gateway.port) == 0
        modes = modes_in(tmp_path / "store")
    assert modes.pop("store") == "0o700"
    assert len(modes) > 5 and set(modes.values()) == {"0o600"}


def test_a_store_that_others_can_read_is_closed_to_them_at_the_next_start(tmp_path: Path) -> None:
    gateway, store = Gateway(tmp_path), tmp_path / "store"
    with gateway.running():
        assert publish(gateway.port) == 0
    (store / "another user's").touch()
    for file in store.iterdir():
        file.chmod(0o644)
    store.chmod(0o755)
    with gateway.running():
        modes = modes_in(store)
        warning = gateway.wait_for_event("is open to others")["reason"]
    assert modes.pop("another user's") == "0o644"
    assert modes.pop("store") == "0o755"
    assert f"chmod 700 {store}" in warning
    assert set(modes.values()) == {"0o600"}


def test_keys_that_others_can_read_are_said_with_the_command_that_ends_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.server()
    secrets = tmp_path / "server.key", authority.sign("route", ["gateway-1"])[1]
    listener = '[listener.tls]\ncertificate = "server.pem"\nkey = "server.key"\n'
    route = '[[route]]\nname = "up"\nbroker = "mqtts://127.0.0.1:1"\n'
    route += '[route.tls]\ncertificate = "route.pem"\nkey = "route.key"\n'
    gateway = Gateway(tmp_path, listener=listener + route)
    for mode, is_open in ((0o600, False), (0o640, False), (0o620, True), (0o644, True)):
        for secret in secrets:
            secret.chmod(mode)
        expected = [f"{path}: other users can read or change it: chmod 600 {path}" for path in secrets if is_open]
        said = holdfast("gateway", "check-config", str(gateway.path)).stderr.splitlines()
        assert said == [
            f"holdfast gateway check-config: warning: a secret is open to others: {one}" for one in expected
        ]
    with gateway.running():
        said = [line["reason"] for line in gateway.log() if line["event"] == "a secret is open to others"]
    assert said == expected


def test_a_file_of_rules_and_a_configuration_that_all_users_can_change_are_said(tmp_path: Path) -> None:
    path, rules = Gateway(tmp_path, 'acl = "rules"').path, tmp_path / "rules"
    rules.write_text("allow * publish #\n")
    assert holdfast("gateway", "check-config", str(path)).stderr == ""
    for file in (path, rules):
        file.chmod(0o646)
    done = holdfast("gateway", "check-config", str(path))
    assert done.exit_code == 0
    assert [f"{file}: other users can change it: chmod o-w {file}" in done.stderr for file in (path, rules)] == [
        True
    ] * 2


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


@pytest.mark.parametrize(("most", "clients"), [(256, 128), (128, 64)])
def test_a_low_limit_of_open_files_leaves_room_for_clients(tmp_path: Path, most: int, clients: int) -> None:
    gateway = Watched(tmp_path)
    with gateway.running("prlimit", f"--nofile={most}"), contextlib.ExitStack() as connected:
        for number in range(clients):
            client = connected.enter_context(socket.create_connection(("127.0.0.1", gateway.port), LONG_S))
            client.sendall(b"\x10\x11\x00\x04MQTT\x04\x02\x00\x00\x00\x05c%04d" % number)
            assert client.recv(4) == b"\x20\x02\x00\x00"
        assert gateway.get("/healthz") == (200, "ok\n")


def test_a_limit_of_open_files_that_is_too_low_ends_the_start(tmp_path: Path) -> None:
    said = refused_start(Gateway(tmp_path).path, wrapper=("prlimit", "--nofile=127"))
    assert "only 127 files may be open at once" in said and "expected at least 128" in said


def refused(*arguments: str) -> str:
    """What a command says that ends with 2."""
    done = holdfast(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    return done.stderr


def refused_start(config: Path, *, wrapper: tuple[str, ...] = (), code: int = 2) -> str:
    """What the process of a gateway says that ends with a code before it is ready."""
    done = check("gateway", "run", "--config", str(config), wrapper=wrapper)
    assert (done.returncode, done.stdout) == (code, "")
    return done.stderr


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


def test_a_disk_that_takes_nothing_at_the_start_ends_it_so_that_a_service_manager_tries_again(tmp_path: Path) -> None:
    """Exit code 2 is for what another start would not help."""
    gateway = Gateway(tmp_path)
    done = check("gateway", "run", "--config", str(gateway.path), wrapper=("prlimit", "--fsize=4096"))
    line = json.loads(done.stderr.splitlines()[-1])
    assert (done.returncode, line["event"]) == (1, "the gateway cannot run")
    assert f"message store {tmp_path / 'store'}" in line["reason"]
    with gateway.running():
        pass


def test_a_store_in_memory_is_warned_of(tmp_path: Path) -> None:
    memory = Path("/dev/shm")
    if not is_in_memory(memory):
        pytest.skip("/dev/shm is no file system in memory")
    assert not is_in_memory(ROOT)
    path = tmp_path / "gateway.toml"
    path.write_text(f'name = "garage"\n[store]\npath = "{memory}/absent/holdfast"\n')
    done = holdfast("gateway", "check-config", str(path))
    assert (done.exit_code, done.stdout) == (0, f"{path}: ok\n")
    assert "warning: what is stored is not durable: /dev/shm/absent/holdfast: on a file system in memory" in done.stderr
    assert "warning: no client can connect: there is no [[listener]]" in done.stderr


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
        f'name = "garage"\n[store]\npath = "{tmp_path}/store"\n[[route]]\nname = "up"\nbroker = "mqtts://b"\n'
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


def test_the_start_is_one_line_with_version_listeners_and_store(tmp_path: Path) -> None:
    listener = f'[[listener]]\nkind = "unix"\npath = "socket"\n[[listener]]\nkind = "websocket"\nport = {free_port()}\n'
    gateway = Gateway(tmp_path, listener=listener)
    with gateway.running() as process:
        (started,) = gateway.log()
        process.stop()
    gateway.log()  # all that it prints is its log
    assert (started["event"], started["gateway"], started["store"]) == ("ready", "garage", str(tmp_path / "store"))
    assert started["version"] == version("holdfast")
    kinds = started["listeners"].split(", ")
    assert kinds[:2] == [f"tcp 127.0.0.1:{gateway.port}", f"unix {tmp_path / 'socket'}"]
    assert kinds[2].startswith("websocket 127.0.0.1:")


def test_a_log_in_json_is_json_from_its_first_line_on(tmp_path: Path) -> None:
    """Also where the configuration is wrong, or the start ends behind it."""
    broken = [
        Gateway(tmp_path, "colour = 3\nshape = 4").path.read_text(),
        'name = "garage"\n[log]\nformat = "json"\nthis is no TOML\n',
    ]
    for text in broken:
        (tmp_path / "gateway.toml").write_text(text)
        done = check("gateway", "run", "--config", str(tmp_path / "gateway.toml"))
        lines = [json.loads(line) for line in done.stderr.splitlines()]
        assert (done.returncode, done.stdout, len(lines)) == (2, "", len(lines))
        assert {line["event"] for line in lines} == {"the gateway cannot run"}
        assert all(line["reason"].startswith(f"{tmp_path / 'gateway.toml'}:") for line in lines)
    gateway = Gateway(tmp_path)
    with socket.create_server(("127.0.0.1", gateway.port)):
        done = check("gateway", "run", "--config", str(gateway.path))
    line = json.loads(done.stderr.splitlines()[-1])
    assert (done.returncode, line["event"]) == (1, "the gateway cannot run")
    assert f"127.0.0.1:{gateway.port}: Address already in use" in line["reason"]


def test_sighup_changes_routes_and_names_the_keys_that_count_from_the_next_start(tmp_path: Path) -> None:
    gateway = Watched(tmp_path, listener='[[route]]\nname = "up"\nbroker = "mqtt://127.0.0.1:1"\n')
    whole = gateway.path.read_text()
    with gateway.running() as process:
        process.signal(signal.SIGHUP)
        gateway.wait_for_event("were read again")
        changed = whole.replace('broker = "mqtt://127.0.0.1:1"', 'broker = "mqtt://127.0.0.1:2"')
        gateway.path.write_text(changed.replace("[store]", "[limits]\nsessions = 3\n[store]\nmax_messages = 5"))
        process.signal(signal.SIGHUP)
        keys = gateway.wait_for_event("count from the next start")["keys"]
        assert keys == "store.max_messages, limits.sessions"
        gateway.wait_for_event("route up: its settings have changed")
        gateway.path.write_text(whole.partition("[[route]]")[0] + "colour = 3\n")
        process.signal(signal.SIGHUP)
        assert "colour: unknown key" in gateway.wait_for_event("next start would fail")["reason"]
        status, text = gateway.get("/healthz")
        assert (status, "the routes stay as they were" in text, "colour: unknown key" in text) == (503, True, True)
        gateway.path.write_text(whole + 'filters = ["a/#"]\n')
        process.signal(signal.SIGHUP)
        gateway.wait_for_event("route up: its settings have changed")
        assert gateway.get("/healthz") == (200, "ok\n")
        process.stop()
    read = "accounts, access rules and certificates were read again"
    differs = "changed keys count from the next start"
    fails = "the routes stay as they were, and the next start would fail"
    said = [line["event"] for line in gateway.log() if line["event"] in (read, differs, fails)]
    # The first SIGHUP found nothing changed. The line that ends a SIGHUP's work comes when the file has been read.
    assert said == [read, differs, read, fails, read, read]
    assert not any("no longer configured" in line["event"] for line in gateway.log())


@pytest.mark.parametrize(
    ("config", "listener", "complaint"),
    [
        ('accounts = "absent"', "", "gateway.toml:2: accounts: "),
        ("", 'tls = { certificate = "rules", key = "rules" }', "gateway.toml:10: listener[0].tls: "),
        ("", 'tls = { certificate = "a", key = "b", user_from = "dns" }', "10: listener[0].tls.user_from: there is no"),
        (
            "",
            '[[route]]\nname = "up"\nbroker = "mqtts://b"\n[route.tls]\nca = "rules"\n',
            "gateway.toml:13: route[0].tls: ",
        ),
    ],
)
def test_check_config_names_what_is_wrong_and_where(tmp_path: Path, config: str, listener: str, complaint: str) -> None:
    (tmp_path / "rules").write_text("everything is allowed\n")
    path = Gateway(tmp_path, config, listener).path
    said = refused("gateway", "check-config", str(path))
    assert said.startswith("holdfast gateway check-config: ") and complaint in said
