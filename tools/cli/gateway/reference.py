"""The tables of the configuration's reference page, made of the schema.

``python -m tools.cli.gateway.reference`` renews them.
"""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect as schema

from gateway.config import connectors, home_assistant, multicast, network, streams
from gateway.config import schema as config
from uplink.config.route import RouteConfig, RouteNeighbourConfig
from uplink.config.tls import RouteTlsConfig
from uplink.foreign.config import AmqpConfig, AmqpIncomingConfig, NatsConfig, NatsIncomingConfig, SparkplugConfig
from uplink.shape import ShapeConfig

PAGE = Path(__file__).parents[3] / "docs/reference/gateway-config.md"
BEGIN, END = "<!-- made of the schema by tools/cli/gateway/reference.py: begin -->", "<!-- end -->"
TABLE_TYPES = (schema.UnionType, schema.StructType)
PERMISSIONS_MAX = 0o777  # what goes so far is written in octal numbers
TABLES: dict[str, type[msgspec.Struct]] = {
    "The file": config.GatewayConfig,
    "`[store]`": config.StoreConfig,
    "`[queue]`": config.QueueConfig,
    "`[client]`": config.ClientConfig,
    "`[[topic]]`": network.TopicConfig,
    "`[[stream]]`": streams.StreamConfig,
    "`[network]`": network.NetworkConfig,
    "`[[multicast]]`": multicast.MulticastConfig,
    "`[[neighbour]]`": network.NeighbourConfig,
    "`[[neighbour.outgoing]]`, `[[neighbour.incoming]]`": network.SelectConfig,
    '`[[listener]]` with `kind = "tcp"`': config.TcpConfig,
    '`[[listener]]` with `kind = "websocket"`': config.WebSocketConfig,
    '`[[listener]]` with `kind = "unix"`': config.UnixConfig,
    '`[[listener]]` with `kind = "serial"`': config.SerialConfig,
    "`[listener.tls]`": config.TlsConfig,
    '`[[connector]]` with `kind = "line"`': connectors.LineConfig,
    '`[[connector.rule]]` with `kind = "line"`': connectors.LineRule,
    '`[[connector]]` with `kind = "nmea"`': connectors.NmeaConfig,
    '`[[connector]]` with `kind = "modbus_rtu"`': connectors.ModbusRtuConfig,
    '`[[connector]]` with `kind = "modbus_ascii"`': connectors.ModbusAsciiConfig,
    '`[[connector]]` with `kind = "modbus_tcp"`': connectors.ModbusTcpConfig,
    "`[[connector.unit]]`": connectors.UnitConfig,
    "`[[connector.unit.value]]`": connectors.ValueConfig,
    "A profile": connectors.ProfileConfig,
    "`[limits]`": config.LimitsConfig,
    "`[log]`": config.LogConfig,
    "`[metrics]`": config.MetricsConfig,
    "`[page]`": config.PageConfig,
    "`[home_assistant]`": home_assistant.HomeAssistantConfig,
    "`[[route]]`": RouteConfig,
    "`[[route.shape]]`": ShapeConfig,
    "`[route.tls]`": RouteTlsConfig,
    "`[route.neighbour]`": RouteNeighbourConfig,
    "`[[route.outgoing]]`, `[[route.incoming]]`": network.SelectConfig,
    '`[[route]]` with `kind = "nats"`': NatsConfig,
    '`[[route.incoming]]` with `kind = "nats"`': NatsIncomingConfig,
    '`[[route]]` with `kind = "amqp"`': AmqpConfig,
    '`[[route.incoming]]` with `kind = "amqp"`': AmqpIncomingConfig,
    '`[[route]]` with `kind = "sparkplug"`': SparkplugConfig,
}


def renew(page: str) -> str:
    """Returns the page with its tables as the schema has them now."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{rest.partition(END)[2]}"


def tables() -> str:
    """Returns a section for each table of the file, in Markdown."""
    return "\n".join(_section(title, table) for title, table in TABLES.items())


def _section(title: str, table: type[msgspec.Struct]) -> str:
    lines = [f"## {title}", "", _join(inspect.getdoc(table) or ""), ""]
    lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
    texts = _texts(table)
    found = schema.type_info(table)
    assert isinstance(found, schema.StructType)
    for field in found.fields:
        lines.append(f"| `{field.encode_name}` | {_type(field.type)} | {_default(field)} | {texts[field.name]} |")
    return "\n".join(lines) + "\n"


def _texts(table: type[msgspec.Struct]) -> dict[str, str]:
    """The sentences below each field in the schema's source."""
    texts: dict[str, str] = {}
    for one in reversed(table.__mro__):
        if one.__module__.partition(".")[0] in ("gateway", "uplink"):
            texts |= _own_texts(one)
    return texts


def _own_texts(table: type) -> dict[str, str]:
    (definition,) = ast.parse(inspect.getsource(table)).body
    assert isinstance(definition, ast.ClassDef)
    texts: dict[str, str] = {}
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            texts[field.target.id] = _join(ast.literal_eval(text.value))
    return texts


def _join(text: str) -> str:
    text = re.sub(r" \[MQTT-[0-9.-]+\]", "", text)  # clauses are for readers of the code
    return " ".join(text.split())


def _type(kind: schema.Type) -> str:
    match kind:
        case schema.BoolType():
            return "true or false"
        case schema.IntType():
            low, high = kind.ge, kind.le
            if high == PERMISSIONS_MAX:
                return f"{low} … {high:#o}"
            return f"{low} … {high}" if high is not None else "number" + (f" from {low}" if low is not None else "")
        case schema.FloatType():
            return "number"
        case schema.StrType():
            return "text"
        case schema.LiteralType():
            return ", ".join(f'`"{value}"`' for value in kind.values)
        case schema.StructType():
            return "table"
        case schema.DictType():
            return "table of texts"
        case schema.ListType() | schema.VarTupleType():
            return "list of tables" if isinstance(kind.item_type, TABLE_TYPES) else "list of texts"
        case schema.UnionType():
            return _type(next(one for one in kind.types if not isinstance(one, schema.NoneType)))
    raise TypeError(f"{kind} has no name for the page")


def _default(field: schema.Field) -> str:
    if field.required:
        return "required"
    value: Any = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if value is None:
        return "none"
    if isinstance(field.type, schema.IntType) and field.type.le == PERMISSIONS_MAX:
        return f"`{value:#o}`"
    return "as below" if isinstance(value, msgspec.Struct) else f"`{msgspec.json.encode(value).decode()}`"


if __name__ == "__main__":
    PAGE.write_text(renew(PAGE.read_text("utf-8")), "utf-8")
