"""Long texts within functions as pieces of one: each text of a module is an object on a board's heap, also where its
characters stay in flash, and most of them are for errors that never come.
"""

import ast
from collections.abc import Mapping

NAME = "TEXTS"
INTERNED_MAX = 10  # characters; so short a text is no object of its own


def gather(modules: Mapping[str, str], holder: str) -> dict[str, str]:
    """The program with its long texts in the module `holder`, which all others may import; it does the same."""
    gatherer = _Gatherer()
    trees = {module: gatherer.visit(ast.parse(text)) for module, text in modules.items()}
    for module, tree in trees.items():
        if module == holder:
            tree.body.insert(0, ast.Assign([ast.Name(NAME, ast.Store())], ast.Constant(gatherer.texts)))
        elif any(isinstance(node, ast.Name) and node.id == NAME for node in ast.walk(tree)):
            tree.body.insert(0, ast.ImportFrom(holder, [ast.alias(NAME)], 0))
    return {module: ast.unparse(ast.fix_missing_locations(tree)) for module, tree in trees.items()}


class _Gatherer(ast.NodeTransformer):
    """Puts pieces of `texts` in place of texts; drops what only people read, annotations and docstrings."""

    def __init__(self) -> None:
        self.texts = ""
        self._is_within = False  # a function: what stands elsewhere is evaluated once, and stays

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        node.decorator_list = [self.visit(decorator) for decorator in node.decorator_list]
        node.args = self.visit(node.args)
        node.returns = None
        before, self._is_within = self._is_within, True
        body = [self.visit(statement) for statement in node.body]
        node.body = [statement for statement in body if statement is not None] or [ast.Pass()]
        self._is_within = before
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(node.arg)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return self.visit(ast.Assign([node.target], node.value))

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return self._piece(node.value) if isinstance(node.value, str) and self._is_long(node.value) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        form = "".join([_form(part) for part in node.values])
        if not self._is_long(form):
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


def _form(part: ast.expr) -> str:
    """A part of an f-string as `str.format` has it."""
    if isinstance(part, ast.Constant):
        return str(part.value).replace("{", "{{").replace("}", "}}")
    assert isinstance(part, ast.FormattedValue)
    conversion = "" if part.conversion < 0 else f"!{chr(part.conversion)}"
    specification = ""
    if isinstance(part.format_spec, ast.JoinedStr):
        specification = ":" + "".join([ast.literal_eval(one) for one in part.format_spec.values])
    return f"{{{conversion}{specification}}}"
