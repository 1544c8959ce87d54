"""Gives names that nothing reads short names, and the same ones again and again: each name takes heap.

Two kinds of names are shortened: private members of classes (`_name`), and functions and values of modules that the
program imports only by their names. These names stay as they are:

- names of classes, because the texts of errors have them,
- names that also stand in a text, because the program may look them up by it,
- members of objects from outside of the program, such as `sys.implementation._mpy`: no class of the program binds such
  a name, or it is read from something that is imported,
- all names of a module that the program uses as a whole, and of one whose own names are read,
- names of the entries, which users' programs import, but for private ones.
"""

import ast
import builtins
import itertools
import string
from collections import Counter
from collections.abc import Iterator

from tools.cli.build.program import COMPUTED_ACCESS, Module, Program
from tools.cli.build.scopes import Binding, Scope
from tools.cli.build.trees import walk

Key = tuple[str, str]  # a module's name, and a name in it


def rename(program: Program, entries: tuple[str, ...]) -> Program:
    """Returns the program with short names; its meaning stays the same. Raises BuildError.

    Args:
        entries: modules whose functions are called from outside the program.
    """
    copies = Program({module.name: module.copy() for module in program.modules.values()})
    for module in copies.modules.values():
        _check(copies, module)
    kept = _kept(copies, entries)
    members = _Members(copies, kept)
    globals_ = _Globals(copies, kept, members.taken)
    trees = {name: _Renamer(module, members, globals_).rename() for name, module in copies.modules.items()}
    return Program({name: Module(name, program.modules[name].path, tree) for name, tree in trees.items()})


class _Members:
    """The new names of private members.

    A class and its subclasses are a family. Two families may have the same short names, unless a name is
    used with another object than `self`: then it has the same new name everywhere.
    """

    def __init__(self, program: Program, kept: set[Key]) -> None:
        self._program = program
        self._family: dict[Key, Key] = {}
        self._fixed = _texts(program) | {name for _, name in kept}
        self._shared: set[str] = set()
        bound: set[str] = set()
        for module in program.modules.values():
            for node in walk(module.tree):
                if isinstance(node, ast.ClassDef):
                    self._fixed.add(node.name)
                    self._join(module, node)
                elif isinstance(node, ast.Attribute) and _is_foreign(program, module, node):
                    self._fixed.add(node.attr)
            bound |= {name for node, name in _uses_of_members(module) if _binds(node)}
        self._fixed |= {name for module in program.modules.values() for _, name in _uses_of_members(module)} - bound
        used = self._find()
        self._new = self._choose(used)
        self.taken = {new for names in self._new.values() for new in names.values()} | self._fixed

    def of(self, module: Module, node: ast.AST, name: str) -> str:
        """Returns the new name of a member, at an attribute or at a binding in a class."""
        if not _is_private(name) or name in self._fixed:
            return name
        class_name = _class_of(module, node)
        family = None if name in self._shared or class_name is None else self._root((module.name, class_name))
        return self._new[family][name]

    def _join(self, module: Module, node: ast.ClassDef) -> None:
        own = (module.name, node.name)
        self._family.setdefault(own, own)
        for base in node.bases:
            if not isinstance(base, ast.Name):
                raise module.refuse(node, f"{ast.unparse(base)}: a base class needs a plain name")
            for binding in module.scopes.bindings_of(base):
                other = _origin(self._program, module, binding)
                if other[0] in self._program:
                    self._family.setdefault(other, other)
                    self._family[self._root(other)] = self._root(own)

    def _root(self, key: Key) -> Key:
        while (parent := self._family.setdefault(key, key)) != key:
            key = parent
        return key

    def _find(self) -> Counter[tuple[Key, str]]:
        """Returns how often each family uses each name, and finds the names that families share."""
        used: Counter[tuple[Key, str]] = Counter()
        for module in self._program.modules.values():
            for node, name in _uses_of_members(module):
                class_name = _class_of(module, node)
                if class_name is None:
                    self._shared.add(name)
                else:
                    used[self._root((module.name, class_name)), name] += 1
        return used

    def _choose(self, used: Counter[tuple[Key, str]]) -> dict[Key | None, dict[str, str]]:
        taken = self._fixed.union(*[module.scopes.all_names() for module in self._program.modules.values()])
        names = (name for name in _short_names() if name not in taken)
        shared = {name: next(names) for name in sorted(self._shared - self._fixed)}
        free = list(itertools.islice(names, len(used)))
        new: dict[Key | None, dict[str, str]] = {None: shared}
        for (family, name), _ in sorted(used.items(), key=lambda one: (-one[1], one[0])):
            if name not in self._shared and name not in self._fixed:
                its = new.setdefault(family, {})
                its[name] = free[len(its)]
        return new


class _Globals:
    """The new names of functions and values of modules."""

    def __init__(self, program: Program, kept: set[Key], first: set[str]) -> None:
        """`kept` stay as they are; `first` are names that the program has anyway, which cost no more."""
        self._program = program
        self._texts = _texts(program)
        self._kept = kept
        self._asked = {(str(node.module), alias.name) for node in _imports(program) for alias in node.names}
        found = {
            (module.name, name)
            for module in program.modules.values()
            for name in module.scopes.module.bindings.keys() - _read_in_classes(module)
            if (module.name, name) not in kept and self._may_change(module, name)
        }
        within = set(dir(builtins)).union(*[module.scopes.all_names() for module in program.modules.values()])
        pool = [name for name in sorted(first, key=lambda one: (len(one), one)) if name not in self._texts]
        spare = (name for name in _short_names() if name not in first and name not in within)
        free = [name for name in pool if name not in within] + list(itertools.islice(spare, len(found)))
        crossing = sorted(found & self._asked)
        self._new: dict[Key, str] = dict(zip(crossing, free, strict=False))
        for module_name in sorted({module for module, _ in found}):
            own = sorted((module_name, name) for module, name in found - self._asked if module == module_name)
            self._new |= dict(zip(own, free[len(crossing) :], strict=False))

    def of(self, module: str, name: str) -> str:
        """Returns the new name of a module's name."""
        return self._new.get((module, name), name)

    def in_scope(self, module: Module, scope: Scope, name: str) -> str:
        """Returns the new name of a name that this scope, which is no class, binds."""
        bindings = scope.bindings[name]
        is_global = scope is module.scopes.module
        if len(bindings) == 1 and isinstance(bindings[0].node, ast.ImportFrom):
            key = _defined(module, bindings[0])
            is_asked = is_global and (module.name, name) in self._kept | self._asked
            return name if is_asked or self.of(*key) == key[1] else self.of(*key)
        return self.of(module.name, name) if is_global else name

    def _may_change(self, module: Module, name: str) -> bool:
        """Returns whether only plain functions and assignments bind a name."""
        bindings = module.scopes.module.bindings[name]
        plain = all(isinstance(one.node, ast.FunctionDef | ast.Name) for one in bindings)
        return plain and name not in self._texts and not name.startswith("__")


class _Renamer(ast.NodeTransformer):
    """Writes the new names into one module's tree."""

    def __init__(self, module: Module, members: _Members, globals_: _Globals) -> None:
        self._module = module
        self._scopes = module.scopes
        self._members = members
        self._globals = globals_

    def rename(self) -> ast.Module:
        self._scopes.module  # noqa: B018 - the scopes must be known before the tree changes
        self.visit(self._module.tree)
        return self._module.tree

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        new = self._members.of(self._module, node, node.attr)
        self.generic_visit(node)
        node.attr = new
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._name_of(node, node.id)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        new = self._name_of(node, node.name)
        self.generic_visit(node)
        node.name = new
        return node

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> ast.AST:
        node.names = [self._name_of(node, name) for name in node.names]
        return node

    visit_Nonlocal = visit_Global  # noqa: N815 - the name that ast.NodeTransformer looks for

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        aliases: dict[str, ast.alias] = {}  # by their texts: a linked module may import a name under two names
        for alias in node.names:
            here = self._name_of(node, alias.asname or alias.name)
            name = self._globals.of(str(node.module), alias.name)
            made = ast.alias(name, None if here == name else here)
            aliases[ast.unparse(made)] = made
        node.names = list(aliases.values())
        return node

    def _name_of(self, node: ast.AST, name: str) -> str:
        """Returns the new name of a name that is used or bound at this node."""
        scope = self._scopes.owner(node, name)
        if scope is None:
            return name
        if scope.is_class:
            return self._members.of(self._module, node, name)
        return self._globals.in_scope(self._module, scope, name)


def _kept(program: Program, entries: tuple[str, ...]) -> set[Key]:
    """Returns the names of modules that stay as they are."""
    whole = {name for node in _imports(program) for alias in node.names if (name := f"{node.module}.{alias.name}")}
    reads = {module.name for module in program.modules.values() if module.reads_its_names}
    closed = program.opened_by_prefix() | whole | reads
    names = {(module.name, name) for module in program.modules.values() for name in module.scopes.module.bindings}
    return {key for key in names if key[0] in closed or (key[0] in entries and not _is_private(key[1]))}


def _check(program: Program, module: Module) -> None:
    """Raises BuildError for a name that is made of parts."""
    for node in walk(module.tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in COMPUTED_ACCESS and len(node.args) > 1:
            is_made = isinstance(node.args[1], ast.BinOp | ast.JoinedStr)
            if is_made and not program.is_foreign(module, node.args[0]):
                raise module.refuse(node, "a name that is made of parts may be that of a member; write it as a whole")


def _binds(node: ast.AST) -> bool:
    return not isinstance(getattr(node, "ctx", None), ast.Load)


def _is_foreign(program: Program, module: Module, node: ast.Attribute) -> bool:
    """Returns whether an attribute is one of a module, or of something that is imported from outside of the program."""
    value = node.value
    while isinstance(value, ast.Attribute | ast.Call | ast.Subscript):
        value = value.func if isinstance(value, ast.Call) else value.value
    for binding in module.scopes.bindings_of(value) if isinstance(value, ast.Name) else []:
        its, name = _defined(module, binding)
        is_from = isinstance(binding.node, ast.ImportFrom) and (its not in program or f"{its}.{name}" in program)
        if is_from or isinstance(binding.node, ast.Import):
            return True
    return False


def _class_of(module: Module, node: ast.AST) -> str | None:
    """Returns the class whose member a node uses or binds; None if that cannot be told."""
    if isinstance(node, ast.Attribute):
        if not isinstance(node.value, ast.Name):
            return None
        scope = module.scopes.owner(node.value)
        bindings = [] if scope is None else scope.bindings[node.value.id]
        if scope is None or len(bindings) != 1 or not bindings[0].is_self:
            return None
        return _class_name(scope.parent)
    name = node.name if isinstance(node, ast.FunctionDef) else getattr(node, "id", "")
    return _class_name(module.scopes.owner(node, name))


def _class_name(scope: Scope | None) -> str | None:
    return scope.node.name if scope is not None and isinstance(scope.node, ast.ClassDef) else None


def _uses_of_members(module: Module) -> Iterator[tuple[ast.AST, str]]:
    """Yields each node that uses or binds a private member, with the name."""
    for node in walk(module.tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            yield node, node.attr
        elif isinstance(node, ast.Name | ast.FunctionDef):
            name = node.id if isinstance(node, ast.Name) else node.name
            scope = module.scopes.owner(node, name)
            if scope is not None and scope.is_class and _is_private(name):
                yield node, name


def _read_in_classes(module: Module) -> set[str]:
    """Returns the names that statements of classes read, where a member of the same name would hide them."""
    found: set[str] = set()
    for node in walk(module.tree):
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                found |= {one.id for one in _outside_of_functions(statement) if isinstance(one, ast.Name)}
    return found


def _outside_of_functions(node: ast.AST) -> Iterator[ast.AST]:
    """Yields a statement's nodes but for the bodies of functions."""
    yield node
    for field, value in ast.iter_fields(node):
        if isinstance(node, ast.FunctionDef | ast.Lambda) and field == "body":
            continue
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.AST):
                yield from _outside_of_functions(one)


def _defined(module: Module, binding: Binding) -> Key:
    """Returns the module and the name that a binding defines or imports."""
    node = binding.node
    if isinstance(node, ast.ImportFrom):
        return str(node.module), str(binding.imported)
    return module.name, str(getattr(node, "name", getattr(node, "id", "")))


def _origin(program: Program, module: Module, binding: Binding) -> Key:
    """Returns the module and the name of a definition, which several modules may import from one another."""
    key = _defined(module, binding)
    while key[0] in program:
        others = program.modules[key[0]].scopes.module.bindings.get(key[1], [])
        if len(others) != 1 or not isinstance(others[0].node, ast.ImportFrom):
            break
        key = _defined(program.modules[key[0]], others[0])
    return key


def _imports(program: Program) -> Iterator[ast.ImportFrom]:
    for module in program.modules.values():
        yield from (node for node in walk(module.tree) if isinstance(node, ast.ImportFrom))


def _texts(program: Program) -> set[str]:
    nodes = (node for module in program.modules.values() for node in walk(module.tree))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def _short_names() -> Iterator[str]:
    for letter in string.ascii_lowercase:
        yield f"_{letter}"
    for pair in itertools.product(string.ascii_lowercase, string.ascii_lowercase + string.digits):
        yield "_" + "".join(pair)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"
