"""A lander's login and TLS: what it shows the broker, and by what it knows that broker."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest
from cryptography import x509

from cloud import land
from tests.cloud.landing.running_lander import RunningLander, landed, publish, wait_until
from tests.cloud.landing.script import Visit
from tests.cloud.landing.script import broker as scripted
from tools.lab.testing.certificates import Authority
from tools.lab.testing.mosquitto import Mosquitto
from tools.lab.testing.ports import free_port


def written(path: Path, text: str) -> Path:
    """Writes a secret to a file that only its owner reads."""
    path.write_text(text)
    path.chmod(0o600)
    return path


@contextmanager
def mosquitto(folder: Path, *lines: str) -> Iterator[int]:
    """Runs mosquitto with a listener of its own besides; yields the port where any client may publish."""
    text = "\n".join(("per_listener_settings true", "allow_anonymous true", *lines))
    broker = Mosquitto(folder, text, is_persistent=False)
    broker.start()
    try:
        yield broker.port
    finally:
        broker.stop()


def tls_listener(port: int, files: tuple[Path, Path], *more: str) -> tuple[str, ...]:
    certificate, key = files
    return (f"listener {port} 127.0.0.1", f"certfile {certificate}", f"keyfile {key}", *more)


def test_a_lander_shows_its_certificate_to_a_broker_that_it_knows_by_its_own(tmp_path: Path, landing: Path) -> None:
    authority, port = Authority(tmp_path), free_port()
    certificate, key = authority.sign("lander", ["lander-1"])
    more = f"cafile {authority.path}", "require_certificate true", "use_identity_as_username true"
    with mosquitto(tmp_path, *tls_listener(port, authority.server(), *more)) as plain:
        running = RunningLander(
            port,
            landing,
            "tls",
            broker=f"mqtts://127.0.0.1:{port}",
            ca=authority.path,
            certificate=str(certificate),
            key=key,
        )
        running.wait_for(f"connected to mqtts://127.0.0.1:{port}")
        payloads = [b"%d" % number * 3000 for number in range(200)]  # many TLS records at once
        publish(plain, "x", payloads)
        wait_until(lambda: len(landed(landing)) == 200, "all messages")
        running.stop()
    assert [row["payload"] for row in landed(landing)] == payloads


def test_a_broker_that_others_vouch_for_is_refused_until_they_are_trusted(tmp_path: Path, landing: Path) -> None:
    authority, stranger, port = Authority(tmp_path), Authority(tmp_path / "other", "other"), free_port()
    trusted = tmp_path / "trusted.pem"
    shutil.copy(stranger.path, trusted)
    with mosquitto(tmp_path, *tls_listener(port, authority.server())):
        running = RunningLander(port, landing, "trusting", broker=f"mqtts://127.0.0.1:{port}", ca=trusted)
        running.wait_for("its certificate is refused: unable to get local issuer certificate; trying again")
        shutil.copy(authority.path, trusted)
        running.wait_for("connected to")
        running.stop()


def test_a_certificate_for_another_name_is_refused(tmp_path: Path, landing: Path) -> None:
    authority, port = Authority(tmp_path), free_port()
    files = authority.sign("other", ["other"], [x509.DNSName("other.example")])
    with mosquitto(tmp_path, *tls_listener(port, files)):
        running = RunningLander(port, landing, "misled", broker=f"mqtts://localhost:{port}", ca=authority.path)
        running.wait_for("its certificate is refused: Hostname mismatch")
        running.stop()


def test_a_wrong_password_is_said_and_its_file_read_again(tmp_path: Path, landing: Path) -> None:
    users, password, port = tmp_path / "users", written(tmp_path / "password", "wrong\n"), free_port()
    subprocess.run(["mosquitto_passwd", "-b", "-c", users, "site-1", "right"], check=True, capture_output=True)
    users.chmod(0o644)
    with mosquitto(tmp_path, f"listener {port} 127.0.0.1", f"password_file {users}") as plain:
        running = RunningLander(port, landing, "login", user="site-1", password_file=password)
        running.wait_for("refuses the connection: the server says: not authorized (0x87); trying again")
        password.write_text("\N{ZERO WIDTH NO-BREAK SPACE}right\r\n")
        running.wait_for("connected to")
        publish(plain, "x", [b"1"])
        wait_until(lambda: bool(landed(landing)), "the message")
        running.stop()
    said = "".join(running.lines) + "".join(path.read_text() for path in landing.glob("*.json"))
    assert "wrong" not in said and "right" not in said


def test_a_password_file_that_vanishes_is_named_and_read_when_it_is_back(tmp_path: Path, landing: Path) -> None:
    password = written(tmp_path / "password", "p")
    connects = []

    def hang_up(visit: Visit) -> None:
        connects.append(visit.connect.password)
        password.unlink()

    def stay(visit: Visit) -> None:
        connects.append(visit.connect.password)
        visit.serve()

    with scripted(hang_up, stay) as port:
        running = RunningLander(port, landing, "lander", user="u", password_file=password)
        running.wait_for(f"cannot log in: {password}: No such file or directory; trying again")
        written(password, "q")
        running.wait_for("connected", times=2)
        running.stop()
    assert connects == [b"p", b"q"]


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o602])
def test_a_password_file_that_others_may_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    password = written(tmp_path / "password", "p")
    password.chmod(mode)
    with pytest.raises(ValueError, match=f"{password}: others may read or change it; expected the permissions 0600"):
        land("mqtt://127.0.0.1", tmp_path / "landing", Event(), user="u", password_file=password)
    assert not (tmp_path / "landing").exists()


@pytest.mark.parametrize(
    ("broker", "options", "said"),
    [
        ("mqtt://b", {"ca": "empty"}, "mqtt://b:1883 has no TLS: expected mqtts:// with ca and certificate"),
        ("mqtts://b", {"ca": "empty"}, "empty: expected certificates of authorities in PEM"),
        ("mqtts://b", {"ca": "missing"}, "missing: No such file or directory"),
        ("mqtts://b", {"certificate": "empty"}, "certificate and key belong together"),
        ("mqtts://b", {"certificate": "empty", "key": "empty"}, "expected a certificate in PEM whose key is in"),
        ("mqtt://b", {"password_file": "empty"}, "expected a password on one line"),
        ("mqtt://b", {"password_file": "."}, "expected a regular file"),
    ],
)
def test_files_that_cannot_be_used_are_named_before_anything_is_made(
    tmp_path: Path, broker: str, options: dict[str, str], said: str
) -> None:
    written(tmp_path / "empty", "")
    files = {name: str(tmp_path / file) for name, file in options.items()}
    with pytest.raises(ValueError, match=said):
        land(broker, tmp_path / "landing", Event(), **files)  # type: ignore[arg-type]
    assert not (tmp_path / "landing").exists()
