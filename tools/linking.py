"""Many modules made one: that saves what each takes of a board's heap, and the names that others import again.

The sources stay apart, for people; a program that is linked from them does the same. Functions keep their names, which
tracebacks tell, unless two modules have the same.
"""

import ast
import builtins
from collections.abc import Iterable, Iterator, Mapping

Trees = Mapping[str, ast.Module]


class LinkError(Exception):
    """The modules say something that cannot be said in one; the text names it."""


def link(sources: Mapping[str, str], groups: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """The program with one module in place of each group: of modules, and of all that these import when they are loaded
    and that is in no group before.

    What is imported within functions alone stays a module of its own. Raises LinkError.

    Args:
        sources: a module's name and its text.
        groups: the name of the one module, and those to begin with.
    """
    trees = {module: ast.parse(text) for module, text in sources.items()}
    names = _Names(trees)
    linked: dict[str, ast.Module] = {}
    for target, entries in groups.items():
        names.add(target, _members(trees, entries, names))
    for target in groups:
        merged: dict[str, ast.stmt] = {}  # by their text: an import that several have stands once
        for module in names.members(target):
            tree = _Linker(module, trees, names).visit(trees[module])
            merged.update({ast.unparse(statement): statement for statement in tree.body})
        linked[target] = ast.Module(list(merged.values()), type_ignores=[])
    for module in trees:
        if names.target(module) is None:
            linked[module] = _Linker(module, trees, names).visit(trees[module])
        elif any(other.startswith(f"{module}.") for other in trees):
            linked[module] = ast.Module([], type_ignores=[])  # the others' package
    return {module: ast.unparse(ast.fix_missing_locations(tree)) for module, tree in linked.items()}


def _members(trees: Trees, entries: Iterable[str], names: "_Names") -> list[str]:
    """The modules that are loaded with these, each after those that it imports."""
    members: dict[str, None] = {}
    under_way: set[str] = set()

    def add(module: str) -> None:
        if module in under_way or names.target(module) is not None:
            return
        under_way.add(module)
        for statement in trees[module].body:
            for imported in _imported(statement, trees):
                add(imported)
        members[module] = None

    for entry in entries:
        add(entry)
    return list(members)


def _imported(statement: ast.stmt, trees: Trees) -> Iterator[str]:
    """Which of our modules a statement imports, or names of them."""
    if isinstance(statement, ast.ImportFrom) and statement.module:
        for alias in statement.names:
            whole = f"{statement.module}.{alias.name}"
            if whole in trees:
                yield whole
            elif statement.module in trees:
                yield statement.module


class _Names:
    """What a name of a module is called in the one module that it becomes part of: as it was, where nothing else there
    is called so."""

    def __init__(self, trees: Trees) -> None:
        self._trees = trees
        self._targets: dict[str, str] = {}
        self._here: dict[str, dict[str, str]] = {}

    def add(self, target: str, members: list[str]) -> None:
        foreign = {name for module in members for name in _foreign(self._trees[module], members)}
        taken = foreign | set(dir(builtins))
        for module in members:
            self._targets[module] = target
            self._here[module] = {}
            for name in _defined(self._trees[module]):
                here = name if name not in taken else f"{module.rpartition('.')[2]}_{name.lstrip('_')}"
                if here in taken:
                    raise LinkError(f"{module}.{name} would be {here}, which is there already")
                taken.add(here)
                self._here[module][name] = here

    def target(self, module: str | None) -> str | None:
        """None: it stays as it is."""
        return self._targets.get(module or "")

    def members(self, target: str) -> list[str]:
        return [module for module, its in self._targets.items() if its == target]

    def of(self, module: str) -> dict[str, str]:
        return dict(self._here.get(module, {}))

    def find(self, module: str | None, name: str) -> str:
        found = self._here.get(module or "", {}).get(name)
        if found is None:
            raise LinkError(f"{name} is imported from {module}, which has none")
        return found


def _foreign(tree: ast.Module, members: Iterable[str]) -> set[str]:
    """The names of what a module imports when it is loaded, but from members."""
    statements = [one for one in tree.body if isinstance(one, ast.Import | ast.ImportFrom)]
    outside = [one for one in statements if isinstance(one, ast.Import) or one.module not in {*members}]
    return {alias.asname or alias.name for one in outside for alias in one.names}


def _defined(tree: ast.Module) -> list[str]:
    """The names that a module gives."""
    names: dict[str, None] = {}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            names[statement.name] = None
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.If | ast.Try):
            stored = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
            names.update({node.id: None for node in stored if isinstance(node.ctx, ast.Store)})
    return list(names)


class _Linker(ast.NodeTransformer):
    """Of one module: a name that is called otherwise in the one module is so everywhere, also where it is a function's
    own, which nobody else sees."""

    def __init__(self, module: str, trees: Trees, names: _Names) -> None:
        self._module = module
        self._trees = trees
        self._names = names
        self._target = names.target(module)
        self._here = names.of(module)  # what a name of this module is called
        self._modules: dict[str, str] = {}  # what a name means, where it means a module that is in a group
        self._around: list[ast.FunctionDef | ast.ClassDef] = []

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
        if not any(self._names.target(imported) for imported in _imported(node, self._trees)):
            return [self.visit_Import(node)]
        statements: list[ast.stmt] = []
        for alias in node.names:
            here = alias.asname or alias.name
            whole = f"{node.module}.{alias.name}"
            if self._names.target(whole):
                self._modules[here] = whole
                aliases = [self._alias(whole, name, f"{here}_{name}") for name in self._attributes(here, whole)]
                statements += [ast.ImportFrom(self._names.target(whole), [one], 0) for one in aliases]
            elif self._names.target(node.module) == self._target and not self._around:
                self._here[here] = self._names.find(node.module, alias.name)
            else:
                one = self._alias(node.module, alias.name, self._here.get(here, here))
                statements.append(ast.ImportFrom(self._names.target(node.module), [one], 0))
        return statements

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> ast.stmt:
        for alias in node.names:
            here = alias.asname or alias.name
            alias.asname = self._here.get(here, alias.asname)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id in self._modules:
            whole = self._modules[node.value.id]
            is_near = self._names.target(whole) == self._target
            name = self._names.find(whole, node.attr) if is_near else f"{node.value.id}_{node.attr}"
            return ast.Name(name, node.ctx)
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._modules:
            raise LinkError(f"{self._module} takes {node.id} for more than the module that it imports")
        node.id = self._here.get(node.id, node.id)
        return node

    def visit_Global(self, node: ast.Global) -> ast.stmt:
        node.names = [self._here.get(name, name) for name in node.names]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        if not self._around or not isinstance(self._around[-1], ast.ClassDef):
            node.name = self._here.get(node.name, node.name)
        return self._within(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        node.name = self._here.get(node.name, node.name)
        return self._within(node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        self._check_unused(node.arg)
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        self._check_unused(node.name)
        return self.generic_visit(node)

    def _check_unused(self, name: str | None) -> None:
        if name in self._modules or self._here.get(name or "", name) != name:
            raise LinkError(f"{self._module} has an argument or exception {name}, which is a name of the module too")

    def _within(self, node: ast.FunctionDef | ast.ClassDef) -> ast.stmt:
        self._around.append(node)
        self.generic_visit(node)
        self._around.pop()
        return node

    def _alias(self, module: str | None, name: str, here: str) -> ast.alias:
        found = self._names.find(module, name)
        return ast.alias(found, None if found == here else here)

    def _attributes(self, alias: str, module: str) -> list[str]:
        """What is used of a module that becomes part of another than this one."""
        if self._names.target(module) == self._target:
            return []
        nodes = [node for node in ast.walk(self._trees[self._module]) if isinstance(node, ast.Attribute)]
        return sorted({node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == alias})
