"""Finds the binding of each name by Python's scopes (Language Reference 4.2.2), which MicroPython has too.

A name that a function, a lambda or a comprehension binds is local to it, unless it is declared `global` or `nonlocal`.
Only the statements of a class see the names that the class binds. Other names belong to the module, or are built in.
"""

import ast
from dataclasses import dataclass, field

from tools.cli.build.trees import children

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
CONDITIONAL = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.With, ast.AsyncWith)


@dataclass(frozen=True)
class Binding:
    """One place where a name is bound.

    ``node`` binds the name, in ``statement``. ``is_certain``: without a condition or a loop around it. ``is_self``: the
    name is the first argument of a method. ``imported``: the name in the module from which it is imported.
    """

    node: ast.AST
    statement: ast.stmt | None
    is_certain: bool
    is_self: bool = False
    imported: str | None = None


@dataclass(eq=False)
class Scope:
    """One namespace and its bindings."""

    node: ast.AST
    parent: "Scope | None"
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    global_names: set[str] = field(default_factory=set)
    nonlocal_names: set[str] = field(default_factory=set)

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)


class Scopes:
    """The scopes of one module's tree."""

    def __init__(self, tree: ast.Module) -> None:
        reader = _Reader(tree)
        self.module = reader.module
        self._scope_of = reader.scope_of
        self._inner = reader.inner

    def owner(self, node: ast.AST, name: str | None = None) -> Scope | None:
        """Returns the scope that binds a name; None if the name is built in.

        Args:
            node: an ``ast.Name``, or a definition or statement that binds ``name``.
        """
        wanted = name or getattr(node, "id", "")
        scope = self._scope_of[node]
        if wanted in scope.bindings:
            return scope
        if wanted not in scope.global_names:
            around = scope.parent
            while around is not None and around is not self.module:
                if wanted in around.global_names:
                    break
                if not around.is_class and wanted in around.bindings:
                    return around
                around = around.parent
        return self.module if wanted in self.module.bindings else None

    def means_module_name(self, node: ast.AST, name: str | None = None) -> bool:
        """Returns whether a name is bound in the module's own scope."""
        return self.owner(node, name) is self.module

    def is_bound(self, node: ast.Name) -> bool:
        """Returns whether the module binds a name; otherwise it is built in."""
        return self.owner(node) is not None

    def bindings_of(self, node: ast.Name) -> list[Binding]:
        """Returns all bindings of a name."""
        scope = self.owner(node)
        return [] if scope is None else scope.bindings[node.id]

    def __contains__(self, node: ast.AST) -> bool:
        return node in self._scope_of

    def is_outside(self, statement: ast.stmt) -> bool:
        """Returns whether a statement is outside of all functions and classes."""
        return self._scope_of[statement] is self.module

    def all_names(self) -> set[str]:
        """Returns all names that are bound anywhere in the module."""
        return self.inner_names() | set(self.module.bindings)

    def inner_names(self) -> set[str]:
        """Returns all names that functions, classes and comprehensions bind in their own scopes."""
        return {name for scope in self._inner for name in scope.bindings}

    def doubtful_names(self) -> set[str]:
        """Returns names that a class binds and reads: the order of its statements decides which binding it reads."""
        read = [node for node in self._scope_of if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
        return {node.id for node in read if self._scope_of[node].is_class and node.id in self._scope_of[node].bindings}


class _Reader(ast.NodeVisitor):
    """Walks through a module's tree, and notes the scope of each node and the bindings of each scope."""

    def __init__(self, tree: ast.Module) -> None:
        self.module = Scope(tree, None)
        self.scope_of: dict[ast.AST, Scope] = {}
        self.inner: list[Scope] = []
        self._scope = self.module
        self._statement: ast.stmt | None = None
        self._certain = True
        for statement in tree.body:
            self.visit(statement)
        for scope in self.inner:
            for name in scope.global_names:
                self._give(scope, name, self.module)
            for name in scope.nonlocal_names:
                self._give(scope, name, _function_around(scope, name))

    def visit(self, node: ast.AST) -> None:
        statement, certain = self._statement, self._certain
        if isinstance(node, ast.stmt):
            self._statement = node
        self.scope_of[node] = self._scope
        super().visit(node)
        self._statement, self._certain = statement, certain

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, CONDITIONAL):
            self._certain = False
        for one in children(node):
            self.visit(one)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._bind(node.id, node)
        elif self._scope.is_class and self._certain and node.id not in self._scope.bindings:
            self.scope_of[node] = self._scope.parent or self.module  # the class has not bound the name yet

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        scope = self._scope
        while isinstance(scope.node, Comprehension) and scope.parent is not None:
            scope = scope.parent  # PEP 572: the target belongs to the scope around the comprehension
        self._add(scope, node.target.id, Binding(node, self._statement, is_certain=False))
        self.scope_of[node.target] = scope
        self.visit(node.value)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._bind(alias.asname or alias.name.partition(".")[0], node, imported=alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._bind(alias.asname or alias.name, node, imported=alias.name)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._bind(node.name, node)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self._scope.global_names.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self._scope.nonlocal_names.update(node.names)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._bind(node.name, node)
        for one in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(one)
        self._enter(node, node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._bind(node.name, node)
        for one in node.decorator_list:
            self.visit(one)
        if node.returns is not None:
            self.visit(node.returns)
        self._visit_function(node, node.body)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name that ast.NodeVisitor looks for

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_function(node, [node.body])

    def visit_ListComp(self, node: Comprehension) -> None:
        self.visit(node.generators[0].iter)  # evaluated outside
        first, *others = node.generators
        elements = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        inner = [first.target, *first.ifs, *(part for one in others for part in (one.target, one.iter, *one.ifs))]
        self._enter(node, [*inner, *elements])

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp  # noqa: N815

    def _visit_function(self, node: Function, body: list[ast.stmt] | list[ast.expr]) -> None:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        rest = [one for one in (node.args.vararg, node.args.kwarg) if one is not None]
        for one in [*node.args.defaults, *node.args.kw_defaults, *(part.annotation for part in [*arguments, *rest])]:
            if one is not None:
                self.visit(one)
        is_method = self._scope.is_class and not getattr(node, "decorator_list", [])
        scope = self._open(node)
        for index, argument in enumerate([*arguments, *rest]):
            self.scope_of[argument] = scope
            is_self = is_method and index == 0 and bool(arguments)
            self._add(scope, argument.arg, Binding(argument, None, is_certain=True, is_self=is_self))
        self._visit_within(scope, body)

    def _enter(self, node: ast.AST, body: list[ast.stmt] | list[ast.expr]) -> None:
        self._visit_within(self._open(node), body)

    def _open(self, node: ast.AST) -> Scope:
        scope = Scope(node, self._scope)
        self.inner.append(scope)
        return scope

    def _visit_within(self, scope: Scope, body: list[ast.stmt] | list[ast.expr]) -> None:
        before, self._scope, self._certain = self._scope, scope, True
        for one in body:
            self.visit(one)
        self._scope = before

    def _give(self, scope: Scope, name: str, owner: Scope) -> None:
        """Moves bindings of a global or nonlocal name to its scope; they are uncertain."""
        for binding in scope.bindings.pop(name, []):
            self._add(owner, name, Binding(binding.node, binding.statement, is_certain=False))

    def _bind(self, name: str, node: ast.AST, imported: str | None = None) -> None:
        self._add(self._scope, name, Binding(node, self._statement, self._certain, imported=imported))

    @staticmethod
    def _add(scope: Scope, name: str, binding: Binding) -> None:
        scope.bindings.setdefault(name, []).append(binding)


def _function_around(scope: Scope, name: str) -> Scope:
    """Returns the innermost function around a scope that binds a name."""
    around = scope.parent
    while around is not None and (around.is_class or name not in around.bindings):
        around = around.parent
    return around or scope
