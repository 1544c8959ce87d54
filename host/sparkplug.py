"""Sparkplug B's messages by the numbers of their fields, and its data types: for what encodes and what decodes them.

The numbers are those of the Sparkplug specification 3.0, section 6.4. They are here instead of in a compiled .proto
file: a compiled file fits few versions of its library, and the published one has another licence.
"""

COMPRESSED = "SPBV1.0_COMPRESSED"
"""The `uuid` of a payload whose body is another payload, compressed."""
INT64, DOUBLE, BOOLEAN, STRING, BYTES = 4, 10, 11, 12, 17
"""Data types of metrics [section 6.4.16]; `cloud.transforms.sparkplug_payload` knows the others too."""
MESSAGES: dict[str, list[tuple[str, int, str]]] = {
    "Payload": [
        ("timestamp", 1, "uint64"),
        ("metrics", 2, "*Metric"),
        ("seq", 3, "uint64"),
        ("uuid", 4, "string"),
        ("body", 5, "bytes"),
    ],
    "Metric": [
        ("name", 1, "string"),
        ("alias", 2, "uint64"),
        ("timestamp", 3, "uint64"),
        ("datatype", 4, "uint32"),
        ("is_historical", 5, "bool"),
        ("is_transient", 6, "bool"),
        ("is_null", 7, "bool"),
        ("metadata", 8, "Ignored"),
        ("properties", 9, "PropertySet"),
        ("int_value", 10, "uint32"),
        ("long_value", 11, "uint64"),
        ("float_value", 12, "float"),
        ("double_value", 13, "double"),
        ("boolean_value", 14, "bool"),
        ("string_value", 15, "string"),
        ("bytes_value", 16, "bytes"),
        ("dataset_value", 17, "DataSet"),
        ("template_value", 18, "Template"),
    ],
    "Ignored": [],
    "PropertySet": [("keys", 1, "*string"), ("values", 2, "*PropertyValue")],
    "PropertyValue": [
        ("type", 1, "uint32"),
        ("is_null", 2, "bool"),
        ("int_value", 3, "uint32"),
        ("long_value", 4, "uint64"),
        ("float_value", 5, "float"),
        ("double_value", 6, "double"),
        ("boolean_value", 7, "bool"),
        ("string_value", 8, "string"),
        ("set_value", 9, "Ignored"),
        ("sets_value", 10, "Ignored"),
    ],
    "DataSet": [("num_columns", 1, "uint64"), ("columns", 2, "*string"), ("types", 3, "*uint32"), ("rows", 4, "*Row")],
    "Row": [("elements", 1, "*Element")],
    "Element": [
        ("int_value", 1, "uint32"),
        ("long_value", 2, "uint64"),
        ("float_value", 3, "float"),
        ("double_value", 4, "double"),
        ("boolean_value", 5, "bool"),
        ("string_value", 6, "string"),
    ],
    "Template": [
        ("version", 1, "string"),
        ("metrics", 2, "*Metric"),
        ("parameters", 3, "*Ignored"),
        ("template_ref", 4, "string"),
        ("is_definition", 5, "bool"),
    ],
}
"""The fields of each message by name, number and type, which may be another message; `*` for repeated ones. A message
has one of its fields whose names end with `_value`."""
