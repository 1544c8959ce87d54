"""The status page of a gateway in a process of its own: what check-config says of it, and what a start serves."""

import base64
import shutil
import signal
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from gateway.auth.accounts import make_account, save_account
from tests.tools.cli.gateway.running import LONG_S, Gateway, check, publish, refused
from tools.lab.testing.certificates import Authority
from tools.lab.testing.ports import free_port

PASSWORD = b"a long enough password"


def get(
    url: str, authority: Authority | None = None, own: tuple[Path, Path] | None = None, user: str = ""
) -> tuple[int, str]:
    """Status and body of an answer."""
    context = None
    if authority is not None:
        context = ssl.create_default_context(cafile=str(authority.path))
        if own is not None:
            context.load_cert_chain(*own)
    request = urllib.request.Request(url)
    if user:
        request.add_header("Authorization", f"Basic {base64.b64encode(user.encode() + b':' + PASSWORD).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=LONG_S, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def paged(folder: Path, page: str = "", config: str = "") -> tuple[Gateway, int]:
    """A gateway with a status page, and the page's port."""
    port = free_port()
    return Gateway(folder, f"{config}\n[page]\nport = {port}\n{page}"), port


def test_page_of_a_running_gateway_shows_a_device_that_has_published(tmp_path: Path) -> None:
    gateway, port = paged(tmp_path)
    with gateway.running() as process:
        assert publish(gateway.port, "-i", "cellar") == 0
        status, body = get(f"http://127.0.0.1:{port}/")
        assert status == 200 and "cellar" in body and "Holdfast: garage" in body
        process.signal(signal.SIGTERM)
        assert process.ended(LONG_S)[0] == 0
        assert [one for one in gateway.log() if one["level"] == "error"] == []


def test_gateway_without_a_page_listens_on_no_port_for_it(tmp_path: Path) -> None:
    port = free_port()
    gateway = Gateway(tmp_path)
    with gateway.running(), pytest.raises(urllib.error.URLError, match="refused"):
        get(f"http://127.0.0.1:{port}/")


def test_users_watch_over_tls_with_a_password_or_a_certificate_and_a_rule(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.server()
    key.chmod(0o600)
    save_account(tmp_path / "accounts", make_account("alice", PASSWORD, with_scram=False))
    (tmp_path / "rules").write_text("allow alice watch garage\nallow * publish #\n")
    files = f'[page.tls]\ncertificate = "{certificate.name}"\nkey = "{key.name}"\n'
    access = 'accounts = "accounts"\nacl = "rules"'
    gateway, port = paged(tmp_path, f'host = "0.0.0.0"\n{files}', access)
    url = f"https://localhost:{port}/"
    with gateway.running():
        assert get(url, authority)[0] == 401
        assert get(url, authority, user="bob")[0] == 401
        assert get(url, authority, user="alice")[0] == 200
    own = {user: authority.sign(user, [user]) for user in ("alice", "carol")}
    gateway, port = paged(tmp_path, f'host = "0.0.0.0"\n{files}client_ca = "{authority.path}"\n', 'acl = "rules"')
    url = f"https://localhost:{port}/"
    with gateway.running() as process:
        assert get(url, authority, own["alice"])[0] == 200
        assert get(url, authority, own["carol"])[0] == 403
        (tmp_path / "rules").write_text("allow carol watch *\n")
        process.signal(signal.SIGHUP)
        gateway.wait_for_event("were read again")
        assert get(url, authority, own["alice"])[0] == 403
        assert get(url, authority, own["carol"])[0] == 200


def test_page_takes_its_new_certificate_on_sighup(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    (tmp_path / "rules").write_text("allow - watch *\n")
    first, second = old.server("first"), new.server("second")
    for source, name in zip(first, ("server.pem", "server.key"), strict=True):
        shutil.copy(source, tmp_path / name)
    gateway, port = paged(tmp_path, '[page.tls]\ncertificate = "server.pem"\nkey = "server.key"\n', 'acl = "rules"')
    with gateway.running() as process:
        assert get(f"https://localhost:{port}/", old)[0] == 200
        for source, name in zip(second, ("server.pem", "server.key"), strict=True):
            shutil.copy(source, tmp_path / name)
        process.signal(signal.SIGHUP)
        gateway.wait_for_event("were read again")
        assert get(f"https://localhost:{port}/", new)[0] == 200


def test_check_config_refuses_a_page_for_others_without_tls_and_users_and_says_so(tmp_path: Path) -> None:
    gateway, port = paged(tmp_path, 'host = "0.0.0.0"')
    said = refused("gateway", "check-config", str(gateway.path))
    assert "page.host: '0.0.0.0' is not loopback: expected [page.tls], as passwords go over this connection" in said
    assert "page.host: '0.0.0.0' is not loopback: expected accounts or page.tls.client_ca" in said
    gateway = Gateway(tmp_path, f"[metrics]\nport = {port}\n[page]\nport = {port}\n")
    said = refused("gateway", "check-config", str(gateway.path))
    assert f"page.port: {port}: [metrics] listens there already" in said


def test_check_config_warns_of_a_page_that_no_user_may_see(tmp_path: Path) -> None:
    save_account(tmp_path / "accounts", make_account("alice", PASSWORD, with_scram=False))
    gateway, _ = paged(tmp_path, "", 'accounts = "accounts"')
    warned = check("gateway", "check-config", str(gateway.path)).stderr
    assert "the status page is shown to no user: no access rule lets a user watch" in warned
    (tmp_path / "rules").write_text("allow alice watch *\n")
    gateway, _ = paged(tmp_path, "", 'accounts = "accounts"\nacl = "rules"')
    assert "status page" not in check("gateway", "check-config", str(gateway.path)).stderr
    gateway, _ = paged(tmp_path)
    assert "status page" not in check("gateway", "check-config", str(gateway.path)).stderr
