"""Replaces constants by their values, because a name takes a board's RAM in each module that uses it.

The sources cannot use `micropython.const`, which Python does not have. A constant is a name in capitals that its module
binds once, unconditionally, to a text, bytes or an integer, and that no other statement assigns. Other names stay.
"""

import ast
import re
from collections.abc import Iterable

from tools.cli.build.program import Module, Program, is_text
from tools.cli.build.scopes import Binding
from tools.cli.build.trees import walk

Constant = int | str | bytes
NAME = re.compile(r"_?[A-Z][A-Z0-9_]*")
CHANGES = ("setattr", "delattr")


def fold(program: Program) -> Program:
    """Returns the program with its constants folded; its meaning stays the same. Raises BuildError."""
    constants = _Constants(program)
    wanted: set[str] = set()
    for _ in range(2):  # the first pass shows which constants are still used by name
        trees = {module.name: _Folder(module, constants, wanted).fold() for module in program.modules.values()}
        wanted |= _asked_by_name(trees.values())
    opened = program.opened_by_prefix()
    for name, module in program.modules.items():
        if not module.reads_its_names and name not in opened:
            gone = constants.of(name).keys() - wanted
            trees[name].body = [one for one in trees[name].body if not _assigned(one) or _assigned(one) - gone]
    return Program({name: Module(name, program.modules[name].path, tree) for name, tree in trees.items()})


class _Constants:
    """The constants of all modules, and their values."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._changed = _names_changed_from_outside(program)
        self._found: dict[str, dict[str, Constant]] = {}
        self._immutable: dict[str, dict[str, object]] = {}

    def of(self, module: str) -> dict[str, Constant]:
        """Returns the constants of a module by name, with the imported ones."""
        if module not in self._found:
            self._found[module] = {}
            self._immutable[module] = {}
            self._find(self._program.modules[module])
        return self._found[module]

    def of_import(self, binding: Binding) -> Constant | None:
        """Returns the value of a name that an import binds; None if it is not a constant."""
        node = binding.node
        if not isinstance(node, ast.ImportFrom) or node.module not in self._program or not binding.is_certain:
            return None
        if not self._program.only_defines(str(node.module)):
            return None  # the import must stay, because it also runs the other module
        return self.of(str(node.module)).get(str(binding.imported))

    def module_of(self, binding: Binding) -> str | None:
        """Returns the module of the program that an import binds; None if it binds something else."""
        if not isinstance(binding.node, ast.ImportFrom) or not binding.is_certain:
            return None
        name = f"{binding.node.module}.{binding.imported}"
        return name if name in self._program else None

    def _find(self, module: Module) -> None:
        scopes = module.scopes
        for statement in module.tree.body:
            names = _assigned(statement)
            values = self._values(module, statement) if names else {}
            if isinstance(statement, ast.ImportFrom):
                names = {alias.asname or alias.name for alias in statement.names}
                values = self._imported(module, statement)
            for name in names - self._changed - scopes.doubtful_names():
                bindings = scopes.module.bindings[name]
                if name in values and len(bindings) == 1 and bindings[0].is_certain:
                    self._immutable[module.name][name] = values[name]
                    if isinstance(value := values[name], Constant):
                        self._found[module.name][name] = value

    def _imported(self, module: Module, statement: ast.ImportFrom) -> dict[str, object]:
        if statement.module not in self._program or not self._program.only_defines(str(statement.module)):
            return {}
        self.of(str(statement.module))
        theirs = self._immutable[str(statement.module)]
        return {alias.asname or alias.name: theirs[alias.name] for alias in statement.names if alias.name in theirs}

    def _values(self, module: Module, statement: ast.stmt) -> dict[str, object]:
        """Returns the values that an assignment binds, if they are made only of constants."""
        known: dict[str, object] = dict(self._immutable[module.name])
        if "range" not in module.scopes.module.bindings:
            known["range"] = range
        try:
            program = compile(ast.Module([statement], type_ignores=[]), module.path, "exec")
            exec(program, {"__builtins__": {}}, known)
        except (NameError, TypeError, AttributeError, ValueError, ArithmeticError, LookupError):
            return {}  # the value needs more than constants
        return {name: known[name] for name in _assigned(statement) if _is_immutable(known[name])}


def _literal(value: Constant) -> ast.expr:
    """Returns the expression of a value; of a negative number an operation, as `**` binds more tightly than `-`."""
    if isinstance(value, int) and value < 0:
        return ast.UnaryOp(ast.USub(), ast.Constant(-value))
    return ast.Constant(value)


def _is_immutable(value: object) -> bool:
    """Returns whether a value stays the same from its assignment to its use."""
    return isinstance(value, Constant | range) or (isinstance(value, tuple) and all(map(_is_immutable, value)))


def _assigned(statement: ast.stmt) -> set[str]:
    """Returns the names that an assignment binds, if all are in capitals; otherwise none."""
    if not isinstance(statement, ast.Assign):
        return set()
    targets: list[ast.expr] = []
    for target in statement.targets:
        targets += target.elts if isinstance(target, ast.Tuple) else [target]
    names = {target.id for target in targets if isinstance(target, ast.Name) and NAME.fullmatch(target.id)}
    return names if len(names) == len(targets) else set()


def _names_changed_from_outside(program: Program) -> set[str]:
    """Returns the attributes that any statement assigns, because the object may be a module."""
    changed: set[str] = set()
    for module in program.modules.values():
        for node in walk(module.tree):
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                changed.add(node.attr)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CHANGES:
                changed |= {str(one.value) for one in node.args if is_text(one) and isinstance(one, ast.Constant)}
    return changed


def _asked_by_name(trees: Iterable[ast.Module]) -> set[str]:
    """Returns the names that are used as attributes, in texts or in imports."""
    nodes = [node for tree in trees for node in walk(tree)]
    asked = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    asked |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return asked | {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}


class _Folder(ast.NodeTransformer):
    """Folds the constants of one module; an import of a name in ``asked`` stays."""

    def __init__(self, module: Module, constants: _Constants, asked: set[str]) -> None:
        self._module = module.copy()
        self._scopes = self._module.scopes
        self._doubtful = self._scopes.doubtful_names()
        self._constants = constants
        self._own = constants.of(module.name)
        self._asked = asked

    def fold(self) -> ast.Module:
        """Returns the module's tree, rewritten."""
        if not self._module.reads_its_names:
            self.visit(self._module.tree)
        return self._module.tree

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt | None:
        node.names = [alias for alias in node.names if alias.name in self._asked or not self._is_folded(node, alias)]
        return node if node.names else None

    def _is_folded(self, node: ast.ImportFrom, alias: ast.alias) -> bool:
        """Returns whether each use of an imported name is replaced by its value."""
        here = alias.asname or alias.name
        scope = self._scopes.owner(node, here)
        bindings = [] if scope is None or here in self._doubtful else scope.bindings[here]
        return len(bindings) == 1 and self._constants.of_import(bindings[0]) is not None

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not isinstance(node.ctx, ast.Load) or node.id in self._doubtful:
            return node
        if self._scopes.means_module_name(node):
            value = self._own.get(node.id)
        else:
            bindings = self._scopes.bindings_of(node)
            value = self._constants.of_import(bindings[0]) if len(bindings) == 1 else None
        return node if value is None else ast.copy_location(_literal(value), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and isinstance(node.ctx, ast.Load):
            bindings = self._scopes.bindings_of(node.value)
            module = self._constants.module_of(bindings[0]) if len(bindings) == 1 else None
            if module is not None and node.attr in (theirs := self._constants.of(module)):
                return ast.copy_location(_literal(theirs[node.attr]), node)
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.value, ast.Constant) and node.conversion < 0 and node.format_spec is None:
            return ast.Constant(str(node.value.value))  # MicroPython accepts no quotes within an f-string's braces
        return node
