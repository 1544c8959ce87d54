"""The reference page is what the schema says."""

from pathlib import Path

import msgspec

from gateway.config import connectors, network, schema
from gateway.config.load import load
from tools.cli.gateway.reference import PAGE, TABLES, renew
from uplink.config.route import RouteConfig, RouteNeighbourConfig
from uplink.config.tls import RouteTlsConfig
from uplink.foreign.config import AmqpIncomingConfig, NatsIncomingConfig
from uplink.reading import FOREIGN
from uplink.shape import ShapeConfig


def test_the_tables_on_the_page_are_those_of_the_schema() -> None:
    """`python -m tools.cli.gateway.reference` renews them."""
    page = PAGE.read_text("utf-8")
    assert renew(page) == page


def test_every_table_of_the_schema_is_on_the_page() -> None:
    keys = (*vars(schema).values(), *vars(network).values(), *vars(connectors).values())
    tables = {one for one in keys if isinstance(one, type) and one.__name__.endswith("Config")}
    tables = tables - {connectors.PortConfig, connectors.TextConfig, connectors.ModbusConfig} | {connectors.LineRule}
    foreign = {*FOREIGN.values(), NatsIncomingConfig, AmqpIncomingConfig}
    assert set(TABLES.values()) == tables | foreign | {RouteConfig, RouteNeighbourConfig, RouteTlsConfig, ShapeConfig}


def test_the_example_on_the_page_can_be_loaded(tmp_path: Path) -> None:
    example = PAGE.read_text("utf-8").split("```toml\n", 1)[1].split("```", 1)[0]
    path = tmp_path / "gateway.toml"
    path.write_text(example)
    loaded, routes = load(path)
    assert len(loaded.listener) == 3
    assert [msgspec.convert(route, RouteConfig).name for route in routes] == ["central"]
