"""Constants written where they are used: a name costs a board's RAM, in each module that knows it; a number does not.

The sources cannot say so themselves, as `micropython.const` is not Python's.
"""

import ast
import re
from collections.abc import Mapping

Constant = int | str | bytes
NAME = re.compile(r"_?[A-Z][A-Z0-9_]*")


def fold(sources: Mapping[str, str], keeps_names: bool) -> dict[str, str]:
    """The modules of a program by their names, with the constants of all folded; it does the same.

    Args:
        keeps_names: public constants stay as well, for programs that are not among these sources.
    """
    trees = {module: ast.parse(text) for module, text in sources.items()}
    constants: dict[str, dict[str, Constant]] = {}
    for module in trees:
        _find(module, trees, constants)
    wanted: set[str] = set()
    for _ in range(2):  # the first time shows what is still asked for by name
        folded = {module: _Folder(module, constants, wanted).visit(ast.parse(text)) for module, text in sources.items()}
        wanted = _attributes(folded)
    for module, tree in folded.items():
        gone = {name for name in constants[module] if name not in wanted and (name[0] == "_" or not keeps_names)}
        if not reads_its_own_names(tree):
            tree.body = [one for one in tree.body if not _assigned(one) or _assigned(one) - gone]
    return {module: ast.unparse(ast.fix_missing_locations(tree)) for module, tree in folded.items()}


def _attributes(trees: Mapping[str, ast.Module]) -> set[str]:
    """What is asked of modules or objects by name."""
    return {node.attr for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def reads_its_own_names(tree: ast.Module) -> bool:
    """Whether its names are for more than people."""
    return any(isinstance(node, ast.Name) and node.id == "globals" for node in ast.walk(tree))


def _find(module: str, trees: Mapping[str, ast.Module], constants: dict[str, dict[str, Constant]]) -> None:
    """Fills in the module's constants, and before them those of the modules that it takes some from."""
    if module in constants:
        return
    constants[module] = {}
    known: dict[str, object] = {}
    for statement in trees[module].body:
        if isinstance(statement, ast.ImportFrom) and statement.module and statement.module in trees:
            _find(statement.module, trees, constants)
            theirs = constants[statement.module]
            known |= {alias.name: theirs[alias.name] for alias in statement.names if alias.name in theirs}
        for name, value in _values(statement, known).items():
            known[name] = value
            if isinstance(value, Constant):
                constants[module][name] = value


def _values(statement: ast.stmt, known: Mapping[str, object]) -> dict[str, object]:
    """What an assignment of constants assigns."""
    names = _assigned(statement)
    if not names or not isinstance(statement, ast.Assign):
        return {}
    values: dict[str, object] = {"range": range, **known}
    program = ast.Module([statement], type_ignores=[])
    try:
        exec(compile(program, "constants", "exec"), {"__builtins__": {}}, values)
    except (NameError, TypeError, AttributeError):
        return {}  # made of more than constants
    return {name: values[name] for name in names}


def _assigned(statement: ast.stmt) -> set[str]:
    """The names that an assignment gives, where all are those of constants."""
    if not isinstance(statement, ast.Assign):
        return set()
    targets: list[ast.expr] = []
    for target in statement.targets:
        targets += target.elts if isinstance(target, ast.Tuple) else [target]
    names = {target.id for target in targets if isinstance(target, ast.Name) and NAME.fullmatch(target.id)}
    return names if len(names) == len(targets) else set()


class _Folder(ast.NodeTransformer):
    """Folds in one module; names that are `asked` of modules stay where they are taken over from another one."""

    def __init__(self, module: str, constants: Mapping[str, Mapping[str, Constant]], asked: set[str]) -> None:
        self._all = constants
        self._asked = asked
        self._known = dict(constants[module])
        self._modules: dict[str, str] = {}  # what a name here means, where it means a module

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt | None:
        theirs = self._all.get(node.module or "", {})
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            if name in self._all:
                self._modules[alias.asname or alias.name] = name
            if alias.name in theirs:
                self._known[alias.asname or alias.name] = theirs[alias.name]
        node.names = [alias for alias in node.names if alias.name not in theirs or alias.name in self._asked]
        return node if node.names else None

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self._known:
            return ast.Constant(self._known[node.id])
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.value, ast.Constant) and node.conversion < 0 and node.format_spec is None:
            return ast.Constant(str(node.value.value))  # MicroPython takes no quotes within an f-string's braces
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id in self._modules:
            theirs = self._all[self._modules[node.value.id]]
            if node.attr in theirs:
                return ast.Constant(theirs[node.attr])
        return self.generic_visit(node)  # type: ignore[return-value]
