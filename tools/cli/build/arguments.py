"""Gives arguments short names: MicroPython keeps the name of each argument on the heap, for calls by keyword.

A board keeps all names in pools, and each pool is twice as large as the one before. So a hundred names less may save a
pool of 9 KB. An argument is renamed only if no call can use its name.
"""

import ast
import string

from tools.cli.build.program import Module, Program
from tools.cli.build.scopes import Scope
from tools.cli.build.trees import walk

Callable = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
RENAMED = (
    ast.arg,
    ast.Name,
    ast.NamedExpr,
    ast.ExceptHandler,
)  # nodes whose names can be renamed together with their uses


def shorten(program: Program, entries: tuple[str, ...]) -> Program:
    """Returns the program with short names for arguments; its meaning stays the same.

    Renames nothing if a call passes computed names, as `f(**values)` does.

    Args:
        entries: modules whose functions are called from outside the program.
    """
    calls = [node for module in program.modules.values() for node in walk(module.tree) if isinstance(node, ast.Call)]
    keywords = {keyword.arg for call in calls for keyword in call.keywords}
    if None in keywords:
        return program
    named = {name for name in keywords if name is not None}
    return Program(
        {
            name: module if name in entries else Module(name, module.path, _Shortener(module, named).shorten())
            for name, module in program.modules.items()
        }
    )


class _Shortener(ast.NodeTransformer):
    """Renames the arguments of one module, except names in `keywords`, which calls use."""

    def __init__(self, module: Module, keywords: set[str]) -> None:
        self._module = module.copy()
        self._scopes = self._module.scopes
        self._keywords = keywords
        self._names: dict[tuple[Scope, str], str] = {}

    def shorten(self) -> ast.Module:
        """Returns the module's tree, rewritten."""
        for node in walk(self._module.tree):
            if isinstance(node, Callable):
                self._find_names(node)
        self.visit(self._module.tree)
        return self._module.tree

    def _find_names(self, function: Callable) -> None:
        """Chooses names that neither the function nor a function within it or around it uses."""
        arguments = [*function.args.posonlyargs, *function.args.args]
        if not arguments:
            return
        scope = self._scopes.owner(arguments[0], arguments[0].arg)
        assert scope is not None
        taken = _words(function) | {new for (other, _), new in self._names.items() if _is_around(other, scope)}
        free = (name for name in string.ascii_lowercase if name not in taken and name not in self._keywords)
        for argument in arguments:
            is_plain = all(isinstance(one.node, RENAMED) for one in scope.bindings[argument.arg])
            if is_plain and argument.arg not in self._keywords and (name := next(free, None)):
                self._names[scope, argument.arg] = name

    def visit_Name(self, node: ast.Name) -> ast.expr:
        node.id = self._name_of(node, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self._name_of(node, node.arg)
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        if node.name:
            node.name = self._name_of(node, node.name)
        return self.generic_visit(node)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.stmt:
        node.names = [self._name_of(node, name) for name in node.names]
        return node

    def _name_of(self, node: ast.AST, name: str) -> str:
        scope = self._scopes.owner(node, name)
        return name if scope is None else self._names.get((scope, name), name)


def _words(function: Callable) -> set[str]:
    """Returns all names in a function."""
    found: set[str] = set()
    for node in walk(function):
        for field in ("id", "arg", "name", "asname"):
            word = getattr(node, field, None)
            if isinstance(word, str):
                found.add(word.partition(".")[0])
        if isinstance(node, ast.Global | ast.Nonlocal):
            found.update(node.names)
    return found


def _is_around(outer: Scope, inner: Scope) -> bool:
    """Returns whether `outer` is `inner` or encloses it."""
    scope: Scope | None = inner
    while scope is not None and scope is not outer:
        scope = scope.parent
    return scope is not None
