"""The tables of routes to foreign systems: the examples on the pages can be used, and what is wrong is named."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from host.errors import ConfigError
from tests.house.repository import ROOT
from tools.cli.gateway.config import read_configuration
from uplink.foreign.config import NatsConfig

PAGES = ("docs/how-to/nats.md", "docs/how-to/rabbitmq.md", "docs/how-to/sparkplug.md")
EXAMPLES = [one for page in PAGES for one in re.findall(r"```toml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)]
EMS = (
    *("server_names", "username", "password", "project", "delivery_mode", "lb_mode", "override_lb_mode"),
    *("gmd_file_delete", "topic_import_dm", "queue_import_dm", "export_headers", "export_properties"),
    *("import_ss_headers", "subscribe_mode", "preserve_gmd"),
)
NATS = '[[route]]\nkind = "nats"\nname = "n"\n'
AMQP = '[[route]]\nkind = "amqp"\nname = "a"\naddress = "/queue/q"\n'
SPARKPLUG = '[[route]]\nkind = "sparkplug"\nname = "s"\n'


def read(folder: Path, text: str) -> str:
    """Returns what is wrong with a configuration, "" if nothing is."""
    file = folder / "gateway.toml"
    file.write_text(f'name = "site-1"\nstore.path = "store"\n{text}')
    try:
        read_configuration(file)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("text", EXAMPLES)
def test_a_gateway_starts_with_the_example(tmp_path: Path, text: str) -> None:
    for name in re.findall(r'"([\w.-]+\.password)"', text):
        (tmp_path / name).write_text("secret\n")
        (tmp_path / name).chmod(0o600)
    assert read(tmp_path, text) == ""


@pytest.mark.parametrize(
    ("text", "key", "why"),
    [
        ('[[route]]\nkind = "kafka"\nname = "k"\n', "kind", '\'kafka\', expected "nats" or "amqp"'),
        (f'{NATS}servers = ["mqtt://a"]', "servers", "expected nats://host:port or tls://host:port"),
        (f'{NATS}servers = ["nats://u:p@a"]', "servers", "no user and no password"),
        (f'{NATS}servers = ["nats://a", "tls://b"]', "servers", "some use TLS"),
        (f"{NATS}servers = []", "servers", "one server at least"),
        (f'{NATS}project = "a.>"', "project", "without wildcards"),
        (f"{NATS}filters = []", "filters", "imports nothing"),
        (f'{NATS}delivery_mode = "all"', "delivery_mode", "needs receivers"),
        (f'{NATS}balance = "sorted"', "balance", "needs receivers"),
        (f'{NATS}delivery_mode = "all"\nreceivers = ["r"]', "stream", "missing"),
        (f'{NATS}delivery_mode = "ordered"\nstream = "S"', "stream", "does not publish to JetStream"),
        (f'{NATS}receivers = ["a.b"]\nbalance = "round_robin"', "receivers", "without blanks"),
        (f'{NATS}user = "u"\ncredentials = "c.creds"', "credentials", "there is a user already"),
        (f'{NATS}password_file = "p"', "password_file", "there is no user"),
        (f'{NATS}[[route.incoming]]\ntopic = "a//b"', "incoming[0].topic", "no pattern"),
        (f'{NATS}[[route.incoming]]\ntopic = "a"\nstream = "a b"', "incoming[0].stream", "without blanks"),
        (
            f'{NATS}subscribe_mode = "exact"\n[[route.incoming]]\ntopic = "t/+"\n[[route.incoming]]\ntopic = "+/x"',
            "incoming[1].topic",
            "'+/x' and 't/+' match the same topic names",
        ),
        (
            f'{NATS}[[route.incoming]]\ntopic = "t/+"\n[[route.incoming]]\ntopic = "+/x"\nstream = "S"',
            "incoming[1].topic",
            "from two sources",
        ),
        (f'{AMQP}servers = ["nats://a"]', "servers", "expected amqp://host:port"),
        (f"{AMQP}[route.tls]", "tls", "expected amqps://"),
        (
            f'{AMQP}[[route.incoming]]\naddress = "/queue/i"\n[[route.incoming]]\naddress = "/queue/i"',
            "incoming[1].address",
            "two sources",
        ),
        ('[[route]]\nkind = "amqp"\nname = "a"\n', "address", "missing"),
        (f'{SPARKPLUG}group = "a/b"', "group", "without '/', '+' and '#'"),
        (f'{SPARKPLUG}group = "g"\nedge_node = "a\\u0000b"', "edge_node", "a name that can be shown"),
    ],
)
def test_what_is_wrong_is_named_with_its_key(tmp_path: Path, text: str, key: str, why: str) -> None:
    found = read(tmp_path, text)
    assert f"route[0].{key}: " in found and why in found


@pytest.mark.parametrize("mode", ["cover", "all"])
def test_filters_that_overlap_are_no_error_where_they_are_joined_or_doubles_are_wanted(
    tmp_path: Path, mode: str
) -> None:
    text = f'{NATS}subscribe_mode = "{mode}"\n[[route.incoming]]\ntopic = "t/+"\n[[route.incoming]]\ntopic = "+/x"'
    assert read(tmp_path, text) == ""


def test_each_parameter_of_ems_is_on_the_page_of_foreign_transports() -> None:
    page = (ROOT / "docs/reference/foreign.md").read_text()
    assert [one for one in EMS if f"`{one}`" not in page] == []


def test_a_gateway_without_such_a_route_does_not_load_their_libraries() -> None:
    program = "import sys, tools.cli.gateway.process; print(sorted({'nats', 'proton', 'nkeys'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("keys", "key", "problem"),
    [
        ({"until": "receipt", "filters": (), "incoming": [{"topic": "a"}]}, "until", "exports nothing"),
        ({"until": "receipt", "receipt_key": "00"}, "receipt_key", "64 hexadecimal digits"),
        ({"keep_max_bytes": 1000}, "keep_max_bytes", 'it needs until = "receipt"'),
    ],
)
def test_a_route_that_cannot_wait_for_receipts_as_configured_says_why(
    keys: dict[str, Any], key: str, problem: str
) -> None:
    values = {"name": "nats", **keys}
    assert any(at == key and problem in why for at, why in NatsConfig.errors_in(values))
