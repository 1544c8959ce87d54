"""A gateway as an operator runs it: a process, its signals, its log, its metrics."""

import contextlib
import json
import signal
import socket
from importlib.metadata import version
from pathlib import Path

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from gateway.auth.accounts import delete_account, make_account, save_account
from tests.gateway.store.support import stored
from tests.gateway.store.test_upgrade import store_of_release
from tests.tools.cli.gateway.running import LONG_S, Gateway, Watched, check, publish, refused_start
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


def test_a_folder_of_firmware_is_served_from_beside_the_configuration_and_warned_of(tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    for name, content in (("index.html", "page"), ("manifest.json", "{}")):
        (tmp_path / "web" / name).write_text(content)
    gateway = Watched(tmp_path)
    gateway.path.write_text(gateway.path.read_text().replace("[metrics]", '[metrics]\nfirmware = "web"'))
    with gateway.running():
        assert gateway.get("/firmware/") == (200, "page")
        assert gateway.get("/firmware/gateway.toml")[0] == 404
        assert gateway.get("/healthz")[0] == 200
        warning = next(line["reason"] for line in gateway.log() if line["event"] == "firmware is served")
    assert warning.startswith(f"{tmp_path / 'web'}: every user of this machine can read it")
    (tmp_path / "web/manifest.json").unlink()
    done = check("gateway", "check-config", str(gateway.path))
    assert done.returncode == 0 and "web: there is no such page" in done.stderr


def test_a_metrics_port_in_use_ends_the_start_with_its_address(tmp_path: Path) -> None:
    gateway = Watched(tmp_path)
    with socket.create_server(("127.0.0.1", gateway.metrics_port)):
        done = check("gateway", "run", "--config", str(gateway.path))
    assert done.returncode == 1
    assert f"metrics 127.0.0.1:{gateway.metrics_port}: " in done.stderr


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


def test_a_disk_that_takes_nothing_at_the_start_ends_it_so_that_a_service_manager_tries_again(tmp_path: Path) -> None:
    """Exit code 2 is for what another start would not help."""
    gateway = Gateway(tmp_path)
    done = check("gateway", "run", "--config", str(gateway.path), wrapper=("prlimit", "--fsize=4096"))
    line = json.loads(done.stderr.splitlines()[-1])
    assert (done.returncode, line["event"]) == (1, "the gateway cannot run")
    assert f"message store {tmp_path / 'store'}" in line["reason"]
    with gateway.running():
        pass


def test_the_start_is_one_line_with_version_listeners_and_store(tmp_path: Path) -> None:
    listener = f'[[listener]]\nkind = "unix"\npath = "socket"\n[[listener]]\nkind = "websocket"\nport = {free_port()}\n'
    gateway = Gateway(tmp_path, listener=listener)
    with gateway.running() as process:
        (started,) = gateway.log()
        process.stop()
    gateway.log()  # all that it prints is its log
    assert (started["event"], started["gateway"], started["store"]) == ("ready", "garage", str(tmp_path / "store"))
    assert started["version"] == version("holdfast-iot")
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


def test_a_release_on_trial_ends_instead_of_changing_the_format_of_the_store(tmp_path: Path) -> None:
    gateway, folder = Gateway(tmp_path), store_of_release(tmp_path)
    on_trial = ("env", "HOLDFAST_ON_TRIAL=yes")
    said = refused_start(gateway.path, wrapper=on_trial)
    assert "of version 7, and a start would bring it to" in said
    assert stored(folder, "PRAGMA user_version") == [(7,)]
    with gateway.running():
        pass
    with gateway.running(*on_trial):
        pass
