"""The reference page knows every key of the configuration."""

from pathlib import Path

import msgspec
import pytest

from gateway import config
from tests.gateway.support import ROOT
from uplink.config import RouteConfig

PAGE = ROOT / "docs/reference/gateway-config.md"
TABLES: dict[str, type[msgspec.Struct]] = {
    "The file": config.GatewayConfig,
    "`[store]`": config.StoreConfig,
    '`[[listener]]` with kind = "tcp"': config.TcpConfig,
    '`[[listener]]` with kind = "serial"': config.SerialConfig,
    "`[[route]]`": RouteConfig,
}


@pytest.mark.parametrize("table", TABLES)
def test_every_key_is_on_the_page_with_its_default(table: str) -> None:
    section = PAGE.read_text().split(f"## {table}\n", 1)[1].split("\n## ", 1)[0]
    rows = {row.split("|")[1].strip(): row for row in section.splitlines() if row.startswith("| `")}
    assert list(rows) == [f"`{field.name}`" for field in msgspec.structs.fields(TABLES[table])]
    for field in msgspec.structs.fields(TABLES[table]):
        if field.default is not msgspec.NODEFAULT:
            assert f"| `{msgspec.json.encode(field.default).decode()}` |" in rows[f"`{field.name}`"]


def test_the_example_on_the_page_can_be_loaded(tmp_path: Path) -> None:
    example = PAGE.read_text().split("```toml\n", 1)[1].split("```", 1)[0]
    path = tmp_path / "gateway.toml"
    path.write_text(example)
    loaded, routes = config.load(path)
    assert len(loaded.listener) == 3
    assert [msgspec.convert(route, RouteConfig).name for route in routes] == ["central"]
