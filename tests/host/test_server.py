"""The URL of a server."""

import pytest

from host.server import Server, parse_server, servers_referred_to


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("mqtt://b", Server("b", 1883, False, "")),
        ("mqtt://[::1]:1884", Server("::1", 1884, False, "")),
        ("mqtts://[::1]:9", Server("::1", 9, True, "")),
        ("mqtts://central.example/", Server("central.example", 8883, True, "")),
        ("ws://b", Server("b", 80, False, "/mqtt")),
        ("wss://b/a/b?c=d", Server("b", 443, True, "/a/b?c=d")),
        ("unix:///run/a@b", Server("", 0, False, "", "/run/a@b")),
    ],
)
def test_a_url_names_host_port_tls_and_path(url: str, server: Server) -> None:
    assert parse_server(url) == server


@pytest.mark.parametrize(
    "url",
    ["http://b", "mqtt://b/path", "ws://b/#top", "ws://b/a b", "mqtt://b?c", "mqtt://", "b", "mqtt://b:0", "unix:a"],
)
def test_a_url_of_another_form_is_an_error_that_names_the_forms(url: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_server(url)


@pytest.mark.parametrize("url", ["ws://b", "unix:///run/b", "b"])
def test_an_error_names_the_forms_that_are_allowed_and_no_others(url: str) -> None:
    with pytest.raises(ValueError, match=r"expected mqtt://host:port or mqtts://host:port$"):
        parse_server(url, ("mqtt", "mqtts"))


@pytest.mark.parametrize(
    "url", ["mqtt://site:hunter2@b:99999", "site:hunter2@b", "http://site:hunter2@b", "mqtt://site:hunter2@[::1"]
)
def test_an_error_never_shows_a_password(url: str) -> None:
    with pytest.raises(ValueError, match="expected ") as raised:
        parse_server(url)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("server", "reference", "expected"),
    [
        ("mqtts://a", "b", ["mqtts://b:8883"]),
        ("mqtts://a:1", "b:2 c", ["mqtts://b:2", "mqtts://c:1"]),
        ("wss://a/path", "[::1]:9", ["wss://[::1]:9/path"]),
        ("mqtt://a", "mqtt://b b:0 b:99999 a..b  ::1", []),
    ],
)
def test_a_reference_leads_to_servers_of_the_same_kind(server: str, reference: str, expected: list[str]) -> None:
    assert [str(one) for one in servers_referred_to(reference, parse_server(server))] == expected
