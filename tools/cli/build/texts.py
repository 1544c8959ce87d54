"""Joins the long texts within functions into one text, in the program or in a file beside it.

Each text is an object on a board's heap, even if its characters stay in flash, and most texts are for rare errors.
"""

import ast
import re
from collections.abc import Collection
from hashlib import sha256

from tools.cli.build.program import Module, Program
from tools.cli.build.trees import walk

NAME = "TEXTS"
INTERNED_MAX = 10  # characters; MicroPython makes no object for so short a text
READER = """
def {name}(a, b):
    try:
        with open(__file__.rpartition(".")[0] + ".txt", "rb") as file:
            file.seek({size})
            if file.read() == b"{name}":
                file.seek(a)
                return str(file.read(b - a), "utf-8")
    except (OSError, MemoryError):
        pass
    return "text " + str(a)
"""
WORD = re.compile(r"[^\W\d]{2}")
VALUE = re.compile(r"{[^{}]*}")


def gather(program: Program, holder: str) -> Program:
    """Returns the program with its long texts in the module `holder`; its meaning stays the same.

    Raises BuildError if a module already uses the name TEXTS.
    """
    gatherer = _Gatherer()
    trees = {module.name: gatherer.gather(module) for module in program.modules.values()}
    return _with_texts(program, trees, holder, ast.Assign([ast.Name(NAME, ast.Store())], ast.Constant(gatherer.texts)))


def set_aside(program: Program, holder: str, but: Collection[str]) -> tuple[Program, bytes]:
    """Returns the program without its sentences, and the content of the file from which it reads them.

    The file has the name of the module `holder` with the suffix `.txt`, and lies beside it. Without the file, and with
    that of another build, a sentence is `text` and a number. A text that the program compares, or that has no word but
    its values, is no sentence, and stays.

    The reader's name belongs to this program alone, so that a module of another build, which may mean something else by
    a short name, cannot be loaded with it.

    Args:
        but: modules that keep their texts, because they leave the heap or use them often.

    Raises BuildError if a module already uses the name TEXTS.
    """
    name = "TEXT" + sha256("".join(program.texts().values()).encode()).hexdigest()[:4]
    gatherer, keeper = _Setter(name), _Keeper()
    trees = {name: (keeper if name in but else gatherer).gather(module) for name, module in program.modules.items()}
    texts = gatherer.texts.encode()
    reader = ast.parse(READER.format(name=name, size=len(texts))).body[0]
    return _with_texts(program, trees, holder, reader, name), texts + name.encode()


def _with_texts(
    program: Program, trees: dict[str, ast.Module], holder: str, texts: ast.stmt, its: str = NAME
) -> Program:
    """Returns the program with these trees, where `texts` in `holder` defines the name `its`, which others import."""
    for name, tree in trees.items():
        if name == holder:
            tree.body.insert(0, texts)
        elif any(isinstance(node, ast.Name) and node.id == its for node in walk(tree)):
            tree.body.insert(0, ast.ImportFrom(holder, [ast.alias(its)], 0))
    return Program({name: Module(name, program.modules[name].path, tree) for name, tree in trees.items()})


class _Gatherer(ast.NodeTransformer):
    """Replaces long texts by slices of `texts`, and drops annotations and docstrings."""

    def __init__(self) -> None:
        self.texts = ""
        self._is_within = False  # whether this is in a function; texts elsewhere stay

    def gather(self, module: Module) -> ast.Module:
        """Returns a module's tree with slices in place of its long texts."""
        is_bound = NAME in module.scopes.all_names()
        for node in walk(module.tree):
            if is_bound or (isinstance(node, ast.Name) and node.id == NAME):
                raise module.refuse(node, f"{NAME} is a name that the build needs for its own text")
            if isinstance(node, ast.FunctionDef):
                _check_annotations(module, node)
        tree: ast.Module = self.visit(module.copy().tree)
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


class _Setter(_Gatherer):
    """Replaces sentences by calls of the function `name`, which reads them from a file that ends with this name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def visit_Compare(self, node: ast.Compare) -> ast.Compare:
        return node

    def _is_long(self, text: str) -> bool:
        said = VALUE.sub("", text)
        return super()._is_long(text) and " " in text and not text.endswith("\n") and WORD.search(said) is not None

    def _piece(self, text: str) -> ast.expr:
        if text not in self.texts:
            self.texts += text
        start = len(self.texts[: self.texts.index(text)].encode())
        bounds: list[ast.expr] = [ast.Constant(start), ast.Constant(start + len(text.encode()))]
        return ast.Call(ast.Name(self._name, ast.Load()), bounds, [])


class _Keeper(_Gatherer):
    """Drops annotations and docstrings, and leaves the texts."""

    def _is_long(self, text: str) -> bool:
        return False


def _check_annotations(module: Module, function: ast.FunctionDef) -> None:
    """Raises BuildError for a name that only an annotation makes local, because annotations are dropped."""
    for node in walk(function):
        if isinstance(node, ast.AnnAssign) and node.value is None and isinstance(node.target, ast.Name):
            scope = module.scopes.owner(node.target)
            if scope is not None and scope.node is function and len(scope.bindings[node.target.id]) == 1:
                raise module.refuse(node, f"{node.target.id} is annotated and never bound")


def _form(text: ast.JoinedStr) -> str | None:
    """Returns an f-string as a text for `str.format`; None if another value formats one of its values."""
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
