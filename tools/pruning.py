"""What a whole program never names is left out of it: a function takes a board's heap also where nobody calls it."""

import ast
from collections.abc import Iterable, Mapping

from tools.folding import reads_its_own_names

Scope = ast.Module | ast.ClassDef


def prune(modules: Mapping[str, str], entries: Iterable[str]) -> dict[str, str]:
    """The program without functions, classes and values that it does not use; it does the same.

    A name that stands anywhere, be it as a text, counts as used wherever it is defined.

    Args:
        entries: modules whose names others use.
    """
    trees = {module: ast.parse(text) for module, text in modules.items()}
    kept = {name for module in entries for statement in trees[module].body for name in _given(statement)}
    while _prune_once(trees.values(), kept):
        pass
    return {module: ast.unparse(tree) for module, tree in trees.items()}


def _prune_once(trees: Iterable[ast.Module], kept: set[str]) -> bool:
    used = kept | {name for tree in trees for node in ast.walk(tree) for name in _names(node)}
    found = False
    for tree in trees:
        if reads_its_own_names(tree):
            continue
        for scope in [node for node in ast.walk(tree) if isinstance(node, Scope)]:
            stays = [one for one in scope.body if not _given(one) or not used.isdisjoint(_given(one))]
            if len(stays) < len(scope.body):
                scope.body[:] = stays or [ast.Pass()]
                found = True
    return found


def _names(node: ast.AST) -> list[str]:
    """What a node uses."""
    if isinstance(node, ast.Name):
        return [node.id] if isinstance(node.ctx, ast.Load) else []
    if isinstance(node, ast.Attribute):
        return [node.attr]
    if isinstance(node, ast.ImportFrom):
        return [alias.name for alias in node.names]
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def _given(statement: ast.stmt) -> list[str]:
    """The names that a definition gives; none where it is no definition, or Python itself may look for the name."""
    names: list[str] = []
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        names = [statement.name]
    elif isinstance(statement, ast.Assign) and not any(isinstance(one, ast.Call) for one in ast.walk(statement)):
        targets = [target for target in statement.targets if isinstance(target, ast.Name)]
        names = [target.id for target in targets] if len(targets) == len(statement.targets) else []
    unseen = [name for name in names if name.startswith("__") and name not in ("__slots__", "__all__")]
    return [] if unseen else names
