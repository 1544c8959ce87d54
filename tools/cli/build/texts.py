"""Long texts within functions as pieces of one: each text of a module is an object on a board's heap, also where its
characters stay in flash, and most of them are for errors that never come.
"""

import ast
import copy

from tools.build.program import Module, Program

NAME = "TEXTS"
INTERNED_MAX = 10  # characters; so short a text is no object of its own


def gather(program: Program, holder: str) -> Program:
    """The program with its long texts in the module `holder`, which all others may import; it means the same.

    Raises BuildError where a module has the name that this needs.
    """
    gatherer = _Gatherer()
    trees = {module.name: gatherer.gather(module) for module in program.modules.values()}
    for name, tree in trees.items():
        if name == holder:
            tree.body.insert(0, ast.Assign([ast.Name(NAME, ast.Store())], ast.Constant(gatherer.texts)))
        elif any(isinstance(node, ast.Name) and node.id == NAME for node in ast.walk(tree)):
            tree.body.insert(0, ast.ImportFrom(holder, [ast.alias(NAME)], 0))
    return Program({name: Module(name, program.modules[name].path, tree) for name, tree in trees.items()})


class _Gatherer(ast.NodeTransformer):
    """Puts pieces of `texts` in place of texts; drops what only people read, annotations and docstrings."""

    def __init__(self) -> None:
        self.texts = ""
        self._is_within = False  # a function: what stands elsewhere is evaluated once, and stays

    def gather(self, module: Module) -> ast.Module:
        """A module's tree with pieces in place of its long texts."""
        is_bound = NAME in module.scopes.all_names()
        for node in ast.walk(module.tree):
            if is_bound or (isinstance(node, ast.Name) and node.id == NAME):
                raise module.refuse(node, f"{NAME} is the name of the build's own text")
            if isinstance(node, ast.FunctionDef):
                _check_annotations(module, node)
        tree: ast.Module = self.visit(copy.deepcopy(module.tree))
        return tree

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        node.decorator_list = [self.visit(decorator) for decorator in node.decorator_list]
        node.args = self.visit(node.args)
        node.returns = None
        before, self._is_within = self._is_within, True
        node.body = [self.visit(statement) for statement in node.body]
        self._is_within = before
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return ast.Pass() if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(node.arg)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.Pass()
        return self.visit(ast.Assign([node.target], node.value))

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return self._piece(node.value) if isinstance(node.value, str) and self._is_long(node.value) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        form = _form(node)
        if form is None or not self._is_long(form):
            return node
        arguments = [self.visit(part.value) for part in node.values if isinstance(part, ast.FormattedValue)]
        return ast.Call(ast.Attribute(self._piece(form), "format", ast.Load()), arguments, [])

    def _is_long(self, text: str) -> bool:
        return self._is_within and len(text) > INTERNED_MAX

    def _piece(self, text: str) -> ast.expr:
        if text not in self.texts:
            self.texts += text
        start = self.texts.index(text)
        bounds = ast.Slice(ast.Constant(start), ast.Constant(start + len(text)))
        return ast.Subscript(ast.Name(NAME, ast.Load()), bounds, ast.Load())


def _check_annotations(module: Module, function: ast.FunctionDef) -> None:
    """An annotation alone makes a name the function's own, and is dropped here."""
    for node in ast.walk(function):
        if isinstance(node, ast.AnnAssign) and node.value is None and isinstance(node.target, ast.Name):
            scope = module.scopes.owner(node.target)
            if scope is not None and scope.node is function and len(scope.bindings[node.target.id]) == 1:
                raise module.refuse(node, f"{node.target.id} is annotated and never bound")


def _form(text: ast.JoinedStr) -> str | None:
    """An f-string as `str.format` has it; None where a value is formatted as another value says."""
    form = ""
    for part in text.values:
        if isinstance(part, ast.FormattedValue):
            specification = [] if part.format_spec is None else part.format_spec.values  # type: ignore[attr-defined]
            if not all(isinstance(one, ast.Constant) for one in specification):
                return None
            conversion = "" if part.conversion < 0 else f"!{chr(part.conversion)}"
            form += f"{{{conversion}{':' if specification else ''}{''.join([one.value for one in specification])}}}"
        else:
            form += str(part.value).replace("{", "{{").replace("}", "}}")  # type: ignore[attr-defined]
    return form
