"""Walks through syntax trees, as `ast` does, several times as fast: it passes by what no step of a build looks at.

These are the contexts of names, operators, and all that is no node. A build walks through each tree dozens of times.
"""

import ast
from collections.abc import Iterator

PLAIN = ("attr", "ctx", "id", "kind", "level", "module", "op", "ops", "type_comment", "type_ignores")
FIELDS = {  # by the name of a class of nodes: its fields that may hold nodes
    name: tuple(field for field in kind._fields if field not in PLAIN and name != "Constant")
    for name, kind in vars(ast).items()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}


def walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields a node and all nodes within it, in the order of `ast.walk`: what encloses others comes first."""
    found = [tree]
    for node in found:
        found += children(node)
        yield node


def children(node: ast.AST) -> list[ast.AST]:
    """Returns the nodes that are directly within a node, in order."""
    found: list[ast.AST] = []
    for field in FIELDS[type(node).__name__]:
        value = getattr(node, field, None)
        if isinstance(value, list):
            found += [one for one in value if isinstance(one, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found
