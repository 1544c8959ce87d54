"""Tests read no private attributes, except the ones in this list; it only shrinks."""

import ast
import re
from collections import Counter
from collections.abc import Iterator

from tests.house.repository import modules, parse, read

PRIVATE = re.compile(r"(?<!\bself)(?<!\bcls)(?<!super\(\))\._(?!_)")  # no file without it needs to be parsed
PUBLIC = ("_replace", "_asdict")  # methods of every named tuple

# How many are left in the files of each name. A test asks for what a user notices instead.
PRIVATE_READS: dict[str, int] = {
    "talk.py": 6,
    "test_broker.py": 3,
    "test_brokers.py": 1,
    "test_publisher.py": 2,
    "test_quiet_month.py": 2,
    "test_refusals.py": 1,
}


def private_reads(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = ast.unparse(node.value)
            if owner not in ("self", "cls", "super()") and node.attr not in PUBLIC:
                yield node


def test_tests_read_no_more_private_attributes_than_before() -> None:
    some = [path for path in modules("tests") if PRIVATE.search(read(path))]
    found = Counter(path.name for path in some for _ in private_reads(parse(path)))
    assert {file: count for file, count in found.items() if count > PRIVATE_READS.get(file, 0)} == {}
