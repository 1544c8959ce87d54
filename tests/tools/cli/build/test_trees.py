"""The walk through a syntax tree that each step of a build makes."""

import ast

from tools.cli.build.modules import PACKAGES
from tools.cli.build.trees import children, walk
from tools.cli.paths import source_root

PASSED_BY = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
SOURCES = sorted(path for package in PACKAGES for path in (source_root() / package).rglob("*.py"))


def test_walk_yields_all_nodes_but_contexts_and_operators_in_the_order_of_ast() -> None:
    trees = [ast.parse(source.read_text()) for source in SOURCES]
    assert len(trees) > 100
    for tree in trees:
        assert [*walk(tree)] == [node for node in ast.walk(tree) if not isinstance(node, PASSED_BY)]
        for node in walk(tree):
            assert children(node) == [one for one in ast.iter_child_nodes(node) if not isinstance(one, PASSED_BY)]
