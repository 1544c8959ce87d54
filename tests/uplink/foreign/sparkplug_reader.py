"""Reads payloads of Sparkplug B by descriptors of its own, those of the published sparkplug_b.proto."""

from typing import Any

import pytest

# Name, number, type of FieldDescriptorProto
FIELDS = {
    "Metric": [
        *[("name", 1, 9), ("alias", 2, 4), ("timestamp", 3, 4), ("datatype", 4, 13), ("is_historical", 5, 8)],
        *[("is_null", 7, 8), ("int_value", 10, 13), ("long_value", 11, 4), ("float_value", 12, 2)],
        *[("double_value", 13, 1), ("boolean_value", 14, 8), ("string_value", 15, 9), ("bytes_value", 16, 12)],
    ],
    "Payload": [("timestamp", 1, 4), ("metrics", 2, 11), ("seq", 3, 4)],
}


def _payload_class() -> Any:
    pytest.importorskip("google.protobuf", reason="protobuf is not installed")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="host.proto", package="host", syntax="proto2")
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            message.field.add(name=field, number=number, type=kind, label=3 if kind == 11 else 1)
            if kind == 11:
                message.field[-1].type_name = ".host.Metric"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("host.Payload"))


Payload = _payload_class()
VALUES = ("int_value", "long_value", "float_value", "double_value", "boolean_value", "string_value", "bytes_value")


def value_of(metric: Any) -> Any:
    """The value of a metric, None if it is null."""
    found = [getattr(metric, name) for name in VALUES if metric.HasField(name)]
    assert len(found) == (0 if metric.is_null else 1)
    value = found[0] if found else None
    return value - 2**64 if metric.datatype == 4 and value is not None and value >= 2**63 else value


def metrics_in(content: bytes) -> list[tuple[str, int, Any, bool]]:
    """Name, data type, value and whether it is history, of each metric of a payload."""
    return [(one.name, one.datatype, value_of(one), one.is_historical) for one in Payload.FromString(content).metrics]
