"""The accounts file: `holdfast gateway passwd` writes it, the gateway reads it, and other users may not."""

import os
import pty
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.auth.accounts import Account, Accounts, is_password, load_accounts, make_account, save_account
from host.errors import ConfigError
from tests.gateway.support import ROOT

COMMAND = [sys.executable, "-m", "tools.cli.main", "gateway", "passwd"]
HASH = "$argon2id$v=19$m=12288,t=3,p=1$c2FsdHNhbHRzYWx0c2FsdA$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "accounts"


def passwd(*arguments: str | Path, typed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], cwd=ROOT, input=typed, capture_output=True, text=True, timeout=60)


def at_a_terminal(file: Path, *typed: str) -> tuple[int, str]:
    """Runs the command at a terminal, types a line at each question; returns its exit code and all that was shown."""
    person, terminal = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, file, "alice"], cwd=ROOT, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
    )
    os.close(terminal)
    shown = b""
    for question, line in zip((b"Password: ", b"Again: "), typed, strict=False):
        while not shown.endswith(question):
            shown += os.read(person, 1000)
        os.write(person, f"{line}\n".encode())
    code = process.wait(60)
    try:
        while data := os.read(person, 1000):
            shown += data
    except OSError:
        pass  # the other end is closed
    os.close(person)
    return code, shown.decode()


def knows(file: Path, name: str, password: bytes) -> bool:
    account = Accounts(file).get(name)
    return account is not None and is_password(password, account.password_hash)


def test_a_password_typed_twice_makes_an_account_and_is_never_shown(file: Path) -> None:
    code, shown = at_a_terminal(file, "s3cret word", "s3cret word")
    assert code == 0, shown
    assert "s3cret" not in shown
    assert knows(file, "alice", b"s3cret word")
    assert not knows(file, "alice", b"s3cret")
    assert "s3cret" not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_password_typed_differently_the_second_time_changes_nothing(file: Path) -> None:
    code, shown = at_a_terminal(file, "s3cret", "s3crte")
    assert code == 2
    assert "the two are not the same" in shown
    assert not file.exists()


def test_a_password_comes_from_standard_input_too(file: Path) -> None:
    done = passwd(file, "alice", typed="from a script\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert knows(file, "alice", b"from a script")


def test_a_changed_password_leaves_comments_and_neighbours_where_they_are(file: Path) -> None:
    file.write_text(f"# the people\nalice:{HASH}\n\n# the machines\nlander:{HASH}\n")
    file.chmod(0o640)
    passwd(file, "alice", typed="new\n")
    lines = file.read_text().splitlines()
    assert lines[0] == "# the people"
    assert lines[1].startswith("alice:$argon2id$") and HASH not in lines[1]
    assert lines[2:] == ["", "# the machines", f"lander:{HASH}"]
    assert sorted(one.name for one in file.parent.iterdir()) == [".lock", file.name]
    assert stat.S_IMODE(file.stat().st_mode) == 0o640  # the gateway's group may go on reading it


def test_a_deleted_account_is_gone_and_one_that_is_not_there_is_told(file: Path) -> None:
    file.write_text(f"alice:{HASH}\nbob:{HASH}\n")
    file.chmod(0o600)
    assert passwd(file, "alice", "--delete").returncode == 0
    assert file.read_text() == f"bob:{HASH}\n"
    done = passwd(file, "alice", "--delete")
    assert done.returncode == 1
    assert done.stderr == f"holdfast gateway passwd: {file}: 'alice' has no account\n"


def test_an_account_has_scram_keys_only_where_they_were_asked_for(file: Path) -> None:
    passwd(file, "alice", "--scram", typed="pencil\n")
    passwd(file, "bob", typed="pencil\n")
    accounts = load_accounts(file)
    assert accounts["alice"].scram is not None
    assert accounts["bob"].scram is None
    done = passwd(file, "carl", "--scram", typed="schlüssel\n")
    assert done.returncode == 2
    assert "must be printable ASCII" in done.stderr


def test_iterations_without_scram_change_nothing(file: Path) -> None:
    done = passwd(file, "alice", "--iterations", "4096", typed="pencil\n")
    assert done.returncode == 2
    assert "--iterations is for SCRAM" in done.stderr
    assert not file.exists()


@pytest.mark.parametrize("name", ["", "*", "-", "a:b", "#a", " a", "a\nb", "a\x00b", "a\u200bb", "x" * 257])
def test_a_name_that_could_be_taken_for_something_else_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"no account can be called|a name has no"):
        make_account(name, b"password", with_scram=False)


@pytest.mark.parametrize("password", [b"", b"x" * 1025])
def test_a_password_of_no_or_too_many_bytes_is_refused(password: bytes) -> None:
    with pytest.raises(ValueError, match="1 to 1024 bytes"):
        make_account("alice", password, with_scram=False)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (f"a:{HASH}\nalice:s3cret\n", "2: expected 'name:password hash' as 'holdfast gateway passwd' writes it"),
        ("alice\n", "1: expected 'name:password hash' as 'holdfast gateway passwd' writes it"),
        (
            "alice:$7$101$c2FsdA==$aGFzaA==\n",
            "1: expected 'name:password hash' as 'holdfast gateway passwd' writes it: "
            "a hash of mosquitto's is of no use here, docs/how-to/mosquitto.md",
        ),
        (f"a:{HASH}\na:{HASH}\n", "2: 'a' has an account already"),
        (f"*:{HASH}\n", "1: no account can be called '*'"),
        (f"a:{HASH}:$scram-sha-256$1$$$\n", "1: the SCRAM keys of 'a' cannot be read"),
        (f"a:{HASH}:nonsense\n", "1: the SCRAM keys of 'a' cannot be read"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line_and_without_the_secret(
    file: Path, text: str, complaint: str
) -> None:
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(ConfigError) as caught:
        load_accounts(file)
    assert str(caught.value) == f"{file}:{complaint}"


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o602])
def test_a_file_that_others_may_read_or_change_is_refused(file: Path, mode: int) -> None:
    file.write_text(f"alice:{HASH}\n")
    file.chmod(mode)
    with pytest.raises(ConfigError, match="others may read or change it; expected the permissions 0600 or 0640"):
        load_accounts(file)


def test_a_file_that_is_not_there_or_not_text_is_named(file: Path) -> None:
    with pytest.raises(ConfigError, match="accounts: No such file"):
        load_accounts(file)
    file.write_bytes(b"\xff\n")
    file.chmod(0o600)
    with pytest.raises(ConfigError, match="accounts: not UTF-8"):
        load_accounts(file)


def test_a_reload_tells_which_accounts_are_gone_or_changed(file: Path) -> None:
    file.write_text(f"alice:{HASH}\nbob:{HASH}\ncarl:{HASH}\n")
    file.chmod(0o600)
    accounts = Accounts(file)
    file.write_text(f"alice:{HASH}\nbob:{HASH.replace('aGFz', 'AAAA')}\ndora:{HASH}\n")
    assert accounts.reload() == {"bob", "carl"}
    assert accounts.get("carl") is None
    assert accounts.get("dora") is not None


def test_a_reload_of_a_broken_file_leaves_the_accounts_that_were(file: Path) -> None:
    file.write_text(f"alice:{HASH}\n")
    file.chmod(0o600)
    accounts = Accounts(file)
    file.write_text("nonsense\n")
    with pytest.raises(ConfigError):
        accounts.reload()
    assert accounts.get("alice") is not None


def test_an_account_shown_by_mistake_shows_no_hash(file: Path) -> None:
    account = make_account("alice", b"pencil", with_scram=True)
    assert repr(account) == "Account(name='alice')"


def test_a_file_reached_by_a_link_is_changed_where_it_lies(file: Path, tmp_path: Path) -> None:
    file.write_text(f"alice:{HASH}\n")
    file.chmod(0o600)
    (tmp_path / "link").symlink_to(file)
    save_account(tmp_path / "link", make_account("bob", b"pencil", with_scram=False))
    assert (tmp_path / "link").is_symlink()
    assert set(load_accounts(file)) == {"alice", "bob"}


def test_accounts_made_at_the_same_time_are_all_there(file: Path) -> None:
    accounts = [Account(f"user-{number}", HASH) for number in range(40)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda account: save_account(file, account), accounts))
    assert set(load_accounts(file)) == {account.name for account in accounts}
