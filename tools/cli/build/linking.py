"""Links many modules into one, which saves a board the heap of each module and of the names in its imports.

The meaning of the program stays the same. A name is changed only if another module of the group has the same name, so
that tracebacks show the names of the sources.

A module can be linked if it binds its names by plain, unconditional statements: functions, classes, assignments and
imports. Anything else is refused with its file and line.
"""

import ast
import builtins
import itertools
from collections.abc import Iterable, Mapping
from functools import cached_property

from tools.cli.build.program import Module, Program
from tools.cli.build.scopes import Binding
from tools.cli.build.trees import walk

LINKED_STATEMENTS = (ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom)
OF_THE_MODULE = ("__file__", "__name__", "__package__", "__path__")  # their values differ between modules


def link(program: Program, groups: Mapping[str, Iterable[str]]) -> Program:
    """Returns the program with one module in place of each group. Raises BuildError.

    A group has its first modules and all modules that they import when they are loaded, except those of earlier groups.
    A module that only functions import stays a module of its own.

    Args:
        groups: the names of the linked modules, each with the group's first modules.
    """
    names = _Names(program)
    for target, entries in groups.items():
        names.add(target, _members(program, entries, names))
    linked: dict[str, Module] = {}
    opened = program.opened_by_prefix()
    for target in groups:
        members = [_Linker(program, program.modules[name], names).link() for name in names.members(target)]
        imports: dict[str, ast.stmt] = {}  # by their texts, so that each import is there once
        body: list[ast.stmt] = []
        for statement in [one for tree in members for one in tree.body]:
            if not isinstance(statement, ast.Import | ast.ImportFrom):
                body.append(statement)
            elif (text := ast.unparse(statement)) not in imports:
                imports[text] = statement
                body.append(statement)
        linked[target] = Module(target, f"{target}.py", ast.Module(body, type_ignores=[]))
    for name, module in program.modules.items():
        if names.target(name) is None:
            linked[name] = Module(name, module.path, _Linker(program, module, names).link())
        elif program.is_package(name) or name in opened:
            linked[name] = Module(name, module.path, ast.Module(names.exports(name) if name in opened else [], []))
    return Program(linked)


def _members(program: Program, entries: Iterable[str], names: "_Names") -> list[str]:
    """Returns the modules that are loaded with `entries`, each after the modules that it imports."""
    members: dict[str, None] = {}
    under_way: set[str] = set()

    def add(name: str) -> None:
        if name in under_way or names.target(name) is not None:
            return
        under_way.add(name)
        for statement in program.modules[name].tree.body:
            for imported in program.imported(statement):
                if imported in under_way and imported not in members:
                    raise program.modules[name].refuse(statement, f"{imported} and {name} import each other")
                add(imported)
        members[name] = None

    for entry in entries:
        add(entry)
    return list(members)


class _Names:
    """The names that linked modules' names get in the one module."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._targets: dict[str, str] = {}
        self._here: dict[str, dict[str, str]] = {}

    def add(self, target: str, members: list[str]) -> None:
        """Joins `members` in one module, and chooses a name for each of their names. Raises BuildError."""
        for name in members:
            self._check(self._program.modules[name])
        self._check_foreign(members)
        foreign = {name for member in members for name in self._foreign(member, members)}
        taken = foreign | set(dir(builtins))
        for member in members:
            self._targets[member] = target
            self._here[member] = {}
            for name in self._own(member):
                found = self._free_name(member, name, taken, members)
                taken.add(found)
                self._here[member][name] = found

    def target(self, module: str | None) -> str | None:
        """Returns the linked module of a module; None if the module stays separate."""
        return self._targets.get(module or "")

    def members(self, target: str) -> list[str]:
        """Returns the modules that `target` replaces."""
        return [module for module, its in self._targets.items() if its == target]

    def of(self, module: str) -> dict[str, str]:
        """Returns the new name of each name of a module; empty if the module stays separate."""
        return self._here.get(module, {})

    def binding(self, module: str, name: str) -> Binding | None:
        """Returns the binding of a linked module's name; None if it has none, or several."""
        found = self._program.modules[module].scopes.module.bindings.get(name, [])
        return found[0] if len(found) == 1 else None

    def exports(self, module: str) -> list[ast.stmt]:
        """Returns the body of a linked module that is loaded by a computed name: imports from the one module."""
        owner = self._program.modules[module]
        for name in self.of(module):
            if self.binding(module, name) is None:
                raise owner.refuse(owner.scopes.module.bindings[name][-1].node, f"{name} is bound several times")
        aliases = [ast.alias(here, None if here == name else name) for name, here in self.of(module).items()]
        return [ast.ImportFrom(self.target(module), aliases, 0)] if aliases else []

    def _free_name(self, module: str, name: str, taken: set[str], members: list[str]) -> str:
        """Returns a name that means nothing else where it is used: the same name if possible."""
        own = self._program.modules[module].scopes.inner_names()
        inner = [self._program.modules[other].scopes.inner_names() for other in members if other != module]
        others = {hidden for names in inner for hidden in names}
        prefixed = f"{module.rpartition('.')[2]}_{name.lstrip('_')}"
        for found in itertools.chain([name, prefixed], (f"{prefixed}_{number}" for number in itertools.count(2))):
            stays = found == name
            is_hidden = found in others and not (stays and not self._is_renamed_by_others(module, name))
            if found not in taken and not is_hidden and (stays or found not in own):
                break
        return found

    def _is_renamed_by_others(self, module: str, name: str) -> bool:
        """Returns whether another module imports this name under a different one, or imports the whole module."""
        for node in self._imports:
            aliases = [one for one in node.names if one.name == name and node.module == module]
            whole = [one for one in node.names if f"{node.module}.{one.name}" == module]
            if whole or any(one.asname not in (None, name) for one in aliases):
                return True
        return False

    @cached_property
    def _imports(self) -> list[ast.ImportFrom]:
        nodes = (node for module in self._program.modules.values() for node in walk(module.tree))
        return [node for node in nodes if isinstance(node, ast.ImportFrom)]

    def _own(self, module: str) -> list[str]:
        """Returns the names that a module binds, without its imports."""
        bindings = self._program.modules[module].scopes.module.bindings
        return [name for name, found in bindings.items() if not isinstance(found[0].node, ast.Import | ast.ImportFrom)]

    def _foreign(self, module: str, members: list[str]) -> dict[str, str]:
        """Returns the names that a module imports from outside of `members`, and the origin of each."""
        found: dict[str, str] = {}
        for statement in self._program.modules[module].tree.body:
            if isinstance(statement, ast.Import):
                found |= {
                    alias.asname or alias.name.partition(".")[0]: ast.unparse(statement) for alias in statement.names
                }
            elif isinstance(statement, ast.ImportFrom) and not {*self._program.imported(statement)} & {*members}:
                for alias in statement.names:
                    found[alias.asname or alias.name] = f"{statement.module}.{alias.name}"
        return found

    def _check(self, module: Module) -> None:
        """Raises BuildError for a statement that a linked module may not have."""
        for statement in module.tree.body:
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not (isinstance(statement, LINKED_STATEMENTS) or is_text):
                raise module.refuse(statement, "a linked module may only bind names, without conditions")
        for node in walk(module.tree):
            if isinstance(node, ast.Name) and node.id in (*OF_THE_MODULE, "globals"):
                raise module.refuse(node, f"{node.id} has another value in a linked module")
        for name, found in module.scopes.module.bindings.items():
            if len(found) > 1 and any(isinstance(one.node, ast.Import | ast.ImportFrom) for one in found):
                raise module.refuse(found[-1].node, f"{name} is imported and bound again")

    def _check_foreign(self, members: list[str]) -> None:
        """Raises BuildError if two members import different things under one name."""
        known: dict[str, str] = {}
        for member in members:
            for name, what in self._foreign(member, members).items():
                if known.setdefault(name, what) != what:
                    module = self._program.modules[member]
                    node = module.scopes.module.bindings[name][0].node
                    raise module.refuse(node, f"{name} is {what} here and {known[name]} in a module linked with it")


class _Linker(ast.NodeTransformer):
    """Rewrites one module: it replaces the names of linked modules by their new names."""

    def __init__(self, program: Program, module: Module, names: _Names) -> None:
        self._program = program
        self._module = module.copy()
        self._scopes = self._module.scopes
        self._names = names
        self._target = names.target(module.name)
        self._here = names.of(module.name)

    def link(self) -> ast.Module:
        """Returns the module's tree, rewritten. Raises BuildError."""
        self.visit(self._module.tree)
        return self._module.tree

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        stays: list[ast.alias] = []
        for alias in node.names:
            here = alias.asname or alias.name
            whole = f"{node.module}.{alias.name}"
            if self._names.target(whole) is not None:
                self._check_single(node, here)
                statements += self._imports_of_module(node, here, whole)
            elif self._names.target(node.module) is None:
                stays.append(alias)
            elif not self._is_at_hand(node):
                found = self._name_in(str(node.module), alias.name, node)
                renamed = ast.alias(found, None if found == here else here)
                statements.append(ast.ImportFrom(self._names.target(node.module), [renamed], 0))
            else:
                self._name_in(str(node.module), alias.name, node)
                self._check_single(node, here)
        if stays:
            statements.insert(0, ast.ImportFrom(node.module, stays, 0))
        return [ast.copy_location(one, node) for one in statements]

    def visit_Name(self, node: ast.Name) -> ast.expr:
        binding = self._import_of(node)
        if binding is not None and isinstance(binding.node, ast.ImportFrom):
            whole = f"{binding.node.module}.{binding.imported}"
            if self._names.target(whole) is not None:
                raise self._module.refuse(node, f"{node.id} is a linked module: only its attributes can be used")
            if self._is_at_hand(binding.node) and self._names.target(binding.node.module) is not None:
                node.id = self._name_in(str(binding.node.module), str(binding.imported), node)
        elif self._scopes.means_module_name(node):
            node.id = self._here.get(node.id, node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        binding = self._import_of(node.value) if isinstance(node.value, ast.Name) else None
        whole = None
        if binding is not None and isinstance(binding.node, ast.ImportFrom):
            whole = f"{binding.node.module}.{binding.imported}"
        if whole is None or self._names.target(whole) is None or not isinstance(node.value, ast.Name):
            return self.generic_visit(node)  # type: ignore[return-value]
        if not isinstance(node.ctx, ast.Load):
            raise self._module.refuse(node, f"{ast.unparse(node)} binds a name of a linked module")
        found = self._name_in(whole, node.attr, node)
        is_near = self._names.target(whole) == self._target
        name = found if is_near else f"{node.value.id}_{node.attr}"
        return ast.copy_location(ast.Name(name, node.ctx), node)

    def visit_Global(self, node: ast.Global) -> ast.stmt:
        node.names = [self._here.get(name, name) for name in node.names]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.ClassDef) -> ast.stmt:
        is_own = self._scopes.means_module_name(node, node.name)
        self.generic_visit(node)
        if is_own:
            node.name = self._here.get(node.name, node.name)
        return node

    visit_ClassDef = visit_FunctionDef  # noqa: N815 - the name that ast.NodeTransformer looks for

    def _import_of(self, node: ast.Name) -> Binding | None:
        """Returns the import that binds a name; None if no import does."""
        bindings = self._scopes.bindings_of(node) if node in self._scopes else []
        imports = [one for one in bindings if isinstance(one.node, ast.ImportFrom)]
        return imports[0] if imports else None

    def _is_at_hand(self, node: ast.ImportFrom) -> bool:
        """Returns whether an import outside of functions takes a name from the same linked module."""
        is_outside = self._scopes.is_outside(node)
        return is_outside and self._target is not None and self._names.target(node.module) == self._target

    def _imports_of_module(self, node: ast.ImportFrom, here: str, whole: str) -> list[ast.stmt]:
        """Returns an import for each used name of a linked module; none if this module is in the same one."""
        if self._names.target(whole) == self._target:
            return []
        nodes = [one for one in walk(self._module.tree) if isinstance(one, ast.Attribute)]
        asked = sorted({one.attr for one in nodes if isinstance(one.value, ast.Name) and one.value.id == here})
        statements: list[ast.stmt] = []
        for attribute in asked:
            local = f"{here}_{attribute}"
            if local in self._scopes.all_names():
                raise self._module.refuse(node, f"{local} is a name here already")
            found = self._name_in(whole, attribute, node)
            renamed = ast.alias(found, None if found == local else local)
            statements.append(ast.ImportFrom(self._names.target(whole), [renamed], 0))
        return statements

    def _name_in(self, module: str, name: str, node: ast.AST) -> str:
        """Returns the new name of a linked module's name. Raises BuildError if it is bound several times."""
        found = self._names.of(module).get(name)
        if found is None:
            raise self._module.refuse(node, f"{module} does not define {name}; import it from the module that does")
        if self._names.binding(module, name) is None:
            raise self._module.refuse(node, f"{module}.{name} is bound several times, so a copy may be out of date")
        return found

    def _check_single(self, node: ast.ImportFrom, here: str) -> None:
        """Raises BuildError unless an import is the only binding of the name."""
        scope = self._scopes.owner(node, here)
        if scope is None or len(scope.bindings[here]) != 1 or not scope.bindings[here][0].is_certain:
            raise self._module.refuse(node, f"{here} is bound again, or under a condition")
        if here in self._scopes.doubtful_names():
            raise self._module.refuse(node, f"a class binds and reads {here}")
