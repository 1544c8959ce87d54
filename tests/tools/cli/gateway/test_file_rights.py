"""Which files of a gateway other users can read or change, and what is said of it."""

from pathlib import Path

from tests.support.command import holdfast
from tests.tools.cli.gateway.running import Gateway, publish
from tools.lab.testing.certificates import Authority


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
