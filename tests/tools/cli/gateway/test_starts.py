"""A start that fails: what may pass by itself ends with 1, so that the service manager tries again; the rest with 2."""

import ctypes
import os
import platform
import socket
import subprocess
from pathlib import Path

import pytest

from gateway.auth.accounts import make_account, save_account
from tests.tools.cli.gateway.running import HOLDFAST, LONG_S, Gateway, publish
from tools.lab.testing.ports import free_port

SYS_SOCKET = {"x86_64": 41, "aarch64": 198}  # <asm/unistd.h>
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2  # prctl(2)
LOAD_WORD, EQUALS, RETURN = (
    0x20,
    0x15,
    0x06,
)  # <linux/bpf_common.h>
ALLOW, FAIL = 0x7FFF0000, 0x00050000  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO
EAFNOSUPPORT = 97


def configured(folder: Path, listener: str, more: str = "") -> Path:
    path = folder / "gateway.toml"
    path.write_text(
        f'name = "garage"\n{more}\n[store]\npath = "store"\nvolatile = true\n[[listener]]\nkind = "tcp"\n{listener}\n'
    )
    return path


def run(path: Path) -> tuple[int, str]:
    """Returns the exit code of a start that fails, and what it says."""
    argv = [*HOLDFAST, "gateway", "run", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LONG_S, check=False)
    return done.returncode, done.stderr


def test_a_port_that_another_process_holds_for_a_moment_ends_with_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        code, said = run(configured(tmp_path, f"port = {held.getsockname()[1]}"))
    assert (code, "Address already in use" in said) == (1, True), said


def test_an_address_that_is_not_up_yet_ends_with_1(tmp_path: Path) -> None:
    code, said = run(configured(tmp_path, 'host = "192.0.2.7"\nport = 1883\nallow_anonymous = true'))
    assert (code, "192.0.2.7" in said) == (1, True), said


@pytest.mark.parametrize("more", ['accounts = "mount/accounts"', 'acl = "mount/access"'])
def test_a_file_on_a_disk_that_is_not_mounted_yet_ends_with_1(tmp_path: Path, more: str) -> None:
    code, said = run(configured(tmp_path, "port = 1883", more))
    assert (code, str(tmp_path / "mount") in said) == (1, True), said


def test_a_password_file_that_is_not_mounted_yet_ends_with_1_and_a_wrong_one_with_2(tmp_path: Path) -> None:
    route = f'port = {free_port()}\n[[route]]\nname = "central"\nbroker = "mqtt://localhost"\nuser = "u"\n'
    path = configured(tmp_path, f'{route}password_file = "password"')
    code, said = run(path)
    assert (code, "No such file" in said) == (1, True), said
    (tmp_path / "password").write_text("two\nlines\n")
    (tmp_path / "password").chmod(0o600)
    assert run(path)[0] == 2


def test_a_store_in_another_process_ends_with_1(tmp_path: Path) -> None:
    first = Gateway(tmp_path)
    with first.running():
        code, said = run(configured(tmp_path, f"port = {free_port()}"))
    assert (code, "another process uses it" in said) == (1, True), said


def test_what_a_person_must_change_in_the_file_ends_with_2_whatever_else_may_pass(tmp_path: Path) -> None:
    code, said = run(configured(tmp_path, "port = 1883\nbacklog = 5", 'accounts = "mount/accounts"'))
    assert (code, "backlog" in said, "mount" in said) == (2, True, True), said


def test_a_name_that_would_be_two_levels_of_topics_is_refused_in_words(tmp_path: Path) -> None:
    path = configured(tmp_path, "port = 1883")
    path.write_text(path.read_text().replace("garage", "site 1/a"))
    code, said = run(path)
    assert code == 2
    assert "name: 'site 1/a': has '/', expected a name without '/', '+', '#' and control characters" in said


def test_the_journal_gets_the_priority_of_each_line(tmp_path: Path) -> None:
    read, write = os.pipe()
    status = os.fstat(write)
    journal = {**os.environ, "JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
    path = configured(tmp_path, "port = 1883", 'accounts = "missing"')
    argv = [*HOLDFAST, "gateway", "run", str(path)]
    with os.fdopen(read) as lines:
        ended = subprocess.Popen(argv, stderr=write, env=journal)
        os.close(write)
        said = lines.read()
    assert ended.wait(LONG_S) == 1
    assert said.startswith("<2>") and "missing" in said, "what ends the gateway is critical"


def test_a_warning_in_the_journal_is_one(tmp_path: Path) -> None:
    read, write = os.pipe()
    status = os.fstat(write)
    journal = {**os.environ, "JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
    (tmp_path / "gateway.toml").write_text('name = "garage"\n[store]\npath = "store"\nvolatile = true\n')
    ended = subprocess.Popen([*HOLDFAST, "gateway", "run", str(tmp_path / "gateway.toml")], stderr=write, env=journal)
    os.close(write)
    with os.fdopen(read) as lines:
        found = [next(line for line in lines if event in line) for event in ("no client can connect", "event=ready")]
        ended.terminate()
        lines.read()
    assert ended.wait(LONG_S) == 0
    assert [line[:3] for line in found] == ["<4>", "<6>"]


class _Program(ctypes.Structure):
    _fields_ = (("size", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _without_ipv6() -> None:
    """Has the kernel refuse sockets of IPv6 to this process and its children, as one without IPv6 does."""

    def step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
        return code.to_bytes(2, "little") + bytes((yes, no)) + value.to_bytes(4, "little")

    steps = [
        step(LOAD_WORD, 0),  # the number of the call
        step(EQUALS, SYS_SOCKET[platform.machine()], 0, 3),
        step(LOAD_WORD, 16),  # its first argument
        step(EQUALS, socket.AF_INET6, 0, 1),
        step(RETURN, FAIL | EAFNOSUPPORT),
        step(RETURN, ALLOW),
    ]
    libc = ctypes.CDLL(None, use_errno=True)
    program = _Program(len(steps), b"".join(steps))
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) == 0


@pytest.mark.skipif(platform.machine() not in SYS_SOCKET, reason="the number of socket(2) here is not known")
def test_a_listener_on_all_addresses_opens_in_a_kernel_without_ipv6(tmp_path: Path) -> None:
    save_account(tmp_path / "accounts", make_account("alice", b"secret", with_scram=False))
    port = free_port()
    path = configured(tmp_path, f'host = "::"\nport = {port}', 'accounts = "accounts"')
    argv = [*HOLDFAST, "gateway", "run", str(path)]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, preexec_fn=_without_ipv6)
    assert process.stderr is not None
    with process.stderr as lines:
        said = next((line for line in lines if "event=ready" in line or "cannot" in line or "holdfast" in line), "")
        assert "event=ready" in said, said
        assert publish(port, "-u", "alice", "-P", "secret") == 0
        process.terminate()
        lines.read()
    assert process.wait(LONG_S) == 0
