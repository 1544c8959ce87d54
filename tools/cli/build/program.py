"""A program during a build: all of its modules, each with its syntax tree and its scopes."""

import ast
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tools.cli.build.scopes import Binding, Scopes
from tools.cli.build.trees import children, walk

READS_NAMES = ("globals",)  # a module that calls it may list its own names
UNKNOWN_NAMES = ("exec", "eval", "locals", "vars")  # functions that may use names which a build cannot see
MAKES_VALUES = ("bytearray", "bytes", "dict", "frozenset", "len", "list", "max", "min", "range", "set", "sum", "tuple")
DECORATORS = ("classmethod", "property", "staticmethod")
COMPUTED_ACCESS = ("getattr", "hasattr", "setattr", "delattr")


class BuildError(Exception):
    """The build cannot prove that the rewritten program means the same; the text names the file and the line."""


@dataclass(frozen=True)
class Module:
    """One module: its name, the path that errors and tracebacks name, and its syntax tree."""

    name: str
    path: str
    tree: ast.Module

    @cached_property
    def scopes(self) -> Scopes:
        """The scopes of the tree, as the tree is when this attribute is first read."""
        return Scopes(self.tree)

    @property
    def reads_its_names(self) -> bool:
        """Whether a function of the module lists the module's own names."""
        return any(isinstance(node, ast.Name) and node.id in READS_NAMES for node in walk(self.tree))

    @cached_property
    def acts(self) -> bool:
        """Whether loading this module does more than bind names, as the tree is when this is first read."""
        return any(_acts(self, node) for statement in self.tree.body for node in loaded(statement))

    def copy(self) -> "Module":
        """Returns a copy with a tree that may be rewritten. Pickle copies ten times as fast as deepcopy."""
        return Module(self.name, self.path, pickle.loads(pickle.dumps(self.tree)))

    def refuse(self, node: ast.AST, why: str) -> BuildError:
        """Returns the error for a node that a build cannot rewrite."""
        path = getattr(node, "source_path", self.path)  # a linked module has its nodes from several files
        return BuildError(f"{path}:{getattr(node, 'lineno', 1)}: {why}")


class Program:
    """The modules of a program by their names. `parse` reads sources; each step of a build returns a new Program."""

    def __init__(self, modules: Mapping[str, Module]) -> None:
        self.modules = dict(modules)

    @classmethod
    def parse(cls, sources: Mapping[str, tuple[str, str]]) -> "Program":
        """Reads the modules, each a path and a text, by their names.

        Raises BuildError if a module uses names in a way that a build cannot follow; SyntaxError.
        """
        program = cls({name: Module(name, path, _parsed(path, text)) for name, (path, text) in sources.items()})
        for module in program.modules.values():
            for node in walk(module.tree):
                for error in program._faults(module, node):
                    raise error
        return program

    def texts(self) -> dict[str, str]:
        """Returns the text of each module, without comments."""
        return {
            name: ast.unparse(ast.fix_missing_locations(module.tree)) + "\n" for name, module in self.modules.items()
        }

    def __contains__(self, name: str | None) -> bool:
        return name in self.modules

    def is_package(self, name: str) -> bool:
        """Returns whether the module is a package with other modules."""
        return any(other.startswith(f"{name}.") for other in self.modules)

    def only_defines(self, name: str, seen: frozenset[str] = frozenset()) -> bool:
        """Returns whether loading a module, with the modules that it imports, only binds names."""
        if self.modules[name].acts:
            return False
        body = self.modules[name].tree.body
        imported = {module for statement in body for module in self.imported(statement)} - seen - {name}
        return all(self.only_defines(module, seen | imported | {name}) for module in imported)

    def imported(self, node: ast.AST) -> Iterator[str]:
        """Yields the modules of the program that an import loads."""
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in self.modules:
                    yield whole
                elif node.module in self.modules:
                    yield node.module

    def opened_by_prefix(self) -> set[str]:
        """Returns the modules that `__import__` may load by a computed name."""
        prefixes = {prefix for module in self.modules.values() for prefix in _import_prefixes(module.tree)}
        return {name for name in self.modules if any(name.startswith(prefix) for prefix in prefixes)}

    def _faults(self, module: Module, node: ast.AST) -> Iterator[BuildError]:
        """Yields the reasons why a build cannot follow a node."""
        if isinstance(node, ast.ImportFrom) and (node.level or any(alias.name == "*" for alias in node.names)):
            yield module.refuse(node, "a relative import, or an import of *, does not show which names it binds")
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in self.modules:
                    yield module.refuse(node, f"write 'from … import …' for {alias.name}, a module of this program")
        if isinstance(node, ast.ClassDef):
            yield from self._faults_of_class(module, node)
        if isinstance(node, ast.Match | ast.TryStar):
            yield module.refuse(node, "MicroPython has no such statement")
        if isinstance(node, ast.Name) and node.id in UNKNOWN_NAMES and not module.scopes.is_bound(node):
            yield module.refuse(node, f"{node.id}() may use any name, so none can be rewritten")
        if isinstance(node, ast.Name) and node.id in READS_NAMES and node not in _read_only(module.tree):
            yield module.refuse(node, "globals() may bind names; use globals().items(), which only reads them")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not module.scopes.is_bound(node.func):
            yield from self._faults_of_call(module, node, node.func.id)

    def _faults_of_class(self, module: Module, node: ast.ClassDef) -> Iterator[BuildError]:
        for base in node.bases:
            named = base.value if isinstance(base, ast.Attribute) else base
            for binding in module.scopes.bindings_of(named) if isinstance(named, ast.Name) else []:
                if isinstance(binding.node, ast.Import | ast.ImportFrom) and not [*self.imported(binding.node)]:
                    what = ast.unparse(base)
                    yield module.refuse(node, f"{what} is from outside of this program, and may call any method")

    def _faults_of_call(self, module: Module, node: ast.Call, function: str) -> Iterator[BuildError]:
        if function == "__import__" and _prefix(node) is None:
            yield module.refuse(node, "__import__ needs a literal at its start, as in __import__('drivers.' + name)")
        if function not in COMPUTED_ACCESS or len(node.args) < 2 or is_text(node.args[1]):
            return
        if function == "delattr" and ast.unparse(node.args[0]).startswith("sys.modules["):
            return  # it removes a module from memory and changes no name of it
        if not (self.is_foreign(module, node.args[0]) or self._is_instance(module, node.args[0])):
            why = f"a computed {function} may use any name of a module of this program"
            yield module.refuse(node, f"{why}; give it a literal name, or an instance")

    def is_foreign(self, module: Module, value: ast.expr) -> bool:
        """Returns whether a value is a module from outside the program, or the result of a checked `__import__`."""
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "__import__":
            return True
        if not isinstance(value, ast.Name):
            return False
        bindings = module.scopes.bindings_of(value)
        return bool(bindings) and all(isinstance(one.node, ast.Import) for one in bindings)

    def _is_instance(self, module: Module, value: ast.expr) -> bool:
        """Returns whether a value is `self`, or a new instance of a class of the program."""
        if not isinstance(value, ast.Name):
            return False
        bindings = module.scopes.bindings_of(value)
        if len(bindings) != 1:
            return False
        if bindings[0].is_self:
            return True
        made = bindings[0].statement
        return (
            isinstance(made, ast.Assign)
            and isinstance(made.value, ast.Call)
            and isinstance(made.value.func, ast.Name)
            and self._is_class(module, made.value.func)
        )

    def _is_class(self, module: Module, name: ast.Name) -> bool:
        bindings = module.scopes.bindings_of(name)
        if len(bindings) != 1:
            return False
        node = bindings[0].node
        if isinstance(node, ast.ImportFrom) and node.module in self.modules:
            found = self.modules[node.module].scopes.module.bindings.get(bindings[0].imported or "", [])
            return len(found) == 1 and isinstance(found[0].node, ast.ClassDef)
        return isinstance(node, ast.ClassDef)


def _read_only(tree: ast.Module) -> list[ast.AST]:
    """Returns the nodes of the name `globals` in `globals().items()`."""
    calls = [node for node in walk(tree) if isinstance(node, ast.Attribute) and node.attr == "items"]
    return [node.value.func for node in calls if isinstance(node.value, ast.Call)]


def _parsed(path: str, text: str) -> ast.Module:
    tree = ast.parse(text, path)
    for node in walk(tree):
        node.source_path = path  # type: ignore[attr-defined]
    return tree


def is_text(node: ast.expr) -> bool:
    """Returns whether an expression is a literal text."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def loaded(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes that run when a module is loaded: all but the bodies of functions."""
    outside: list[ast.AST | None]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        outside = [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults]
    elif isinstance(node, ast.Lambda):
        outside = [*node.args.defaults, *node.args.kw_defaults]
    else:
        outside = [*children(node)]
    yield node
    for one in outside:
        if one is not None:
            yield from loaded(one)


def _acts(module: Module, node: ast.AST) -> bool:
    """Returns whether a node may do more than make a value and bind a name when its module is loaded."""
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name):
            return True
        return node.func.id not in MAKES_VALUES and not _only_computes(module.scopes.bindings_of(node.func))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return any(getattr(one, "id", "") not in DECORATORS for one in node.decorator_list)
    return isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load)


def _only_computes(bindings: list[Binding]) -> bool:
    """Returns whether a call of the bound function or class can only change the object that it makes."""
    called = bindings[0].node if len(bindings) == 1 else None
    if isinstance(called, ast.ClassDef) and not called.bases:
        body = [one for one in called.body if isinstance(one, ast.FunctionDef) and one.name in ("__init__", "__new__")]
    else:
        body = [called] if isinstance(called, ast.FunctionDef) else []
    return bool(body) and not any(_changes_others(node) for function in body for node in walk(function))


def _changes_others(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return not (isinstance(node.func, ast.Name) and node.func.id in MAKES_VALUES)
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        return not (isinstance(node.value, ast.Name) and node.value.id == "self")
    return isinstance(node, ast.Global | ast.Nonlocal | ast.Subscript) and not isinstance(
        getattr(node, "ctx", None), ast.Load
    )


def _import_prefixes(tree: ast.Module) -> Iterator[str]:
    for node in walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "__import__":
            yield _prefix(node) or ""


def _prefix(call: ast.Call) -> str | None:
    """Returns the literal text at the start of the module name for `__import__`."""
    name = call.args[0] if call.args else None
    if isinstance(name, ast.BinOp) and isinstance(name.op, ast.Add):
        name = name.left
    return str(name.value) if name is not None and is_text(name) and isinstance(name, ast.Constant) else None
