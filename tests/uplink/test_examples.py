"""The examples on the page about next brokers can be used as they are."""

import re
from pathlib import Path

import pytest

from tests.house.repository import ROOT
from tools.cli.gateway.config import read_configuration
from tools.lab.check.custody import FAIL, CustodyTrial
from tools.lab.check.subject import Address
from tools.lab.testing.certificates import Authority
from tools.lab.testing.mosquitto import Mosquitto
from uplink.config.route import RouteConfig

PAGE = (ROOT / "docs/how-to/next-broker.md").read_text()
ROUTES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
BLOCKS = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_has_an_example_for_each_kind_of_broker() -> None:
    assert len(ROUTES) == 5


@pytest.mark.parametrize("text", ROUTES)
def test_a_gateway_starts_with_the_example(tmp_path: Path, text: str) -> None:
    authority = Authority(tmp_path / "made")
    certificate, key = authority.sign("site-1", ["site-1"])
    kinds = {"password": b"secret\n", "key": key.read_bytes(), "pem": authority.path.read_bytes()}
    for name, kind in re.findall(r'"([\w.-]+\.(pem|key|password))"', text):
        path = tmp_path / name
        path.write_bytes(certificate.read_bytes() if name == "site-1.pem" else kinds[kind])
        path.chmod(0o600)
    file = tmp_path / "gateway.toml"
    file.write_text(f'name = "site-1"\nstore.path = "store"\n\n{text}')
    (route,) = read_configuration(file).routes
    assert isinstance(route, RouteConfig)
    assert route.broker.startswith("mqtts://")


async def test_a_mosquitto_with_the_lines_of_the_page_may_have_custody(tmp_path: Path) -> None:
    lines = [line for line in BLOCKS[0].splitlines() if line.split()[0] not in ("persistence", "max_queued_messages")]
    broker = Mosquitto(tmp_path, "\n".join(lines))  # which has the other two
    broker.start()
    try:
        findings = await CustodyTrial(Address("127.0.0.1", broker.port), 1200).run()
    finally:
        broker.stop()
    assert not [one for one in findings if one.verdict == FAIL]
