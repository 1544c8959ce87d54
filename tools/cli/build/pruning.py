"""Drops functions and classes whose names stand nowhere else in the program: nothing calls them.

A name stands somewhere if any expression, import, argument of a call or text is this name, whatever it means there. So
nothing is dropped that the program could reach. The VM reaches more: it calls methods of streams and file systems by
their names, which stay.
"""

import ast
from collections.abc import Iterator

from tools.cli.build.program import Module, Program, loaded
from tools.cli.build.trees import walk

SLOTS = "__slots__"  # MicroPython does not use it
CALLED_BY_THE_VM = {  # io.IOBase and vfs.mount, with the block devices below
    *("close", "ioctl", "readblocks", "readinto", "syncblocks", "write", "writeblocks"),
    *(
        "chdir",
        "getcwd",
        "ilistdir",
        "mkdir",
        "mount",
        "open",
        "remove",
        "rename",
        "rmdir",
        "stat",
        "statvfs",
        "umount",
    ),
}
Definition = ast.FunctionDef | ast.ClassDef


def prune(program: Program, entries: tuple[str, ...]) -> Program:
    """Returns the program without the functions and classes that it never names; its meaning stays the same.

    Args:
        entries: modules whose functions are called from outside the program.
    """
    trees = {name: module.copy().tree for name, module in program.modules.items()}
    called = [node for name in entries if name in trees for node in walk(trees[name])]
    kept = CALLED_BY_THE_VM | {node.name for node in called if isinstance(node, Definition)}
    while True:
        named = kept | {name for tree in trees.values() for name in _named(tree)}
        if not sum(_drop(tree, named) for tree in trees.values()):
            break
    return Program({name: Module(name, program.modules[name].path, tree) for name, tree in trees.items()})


def _drop(tree: ast.Module, named: set[str]) -> bool:
    """Drops what is not named from a module and its classes; returns whether anything was."""
    dropped = False
    holders: list[ast.Module | ast.ClassDef] = [tree]
    holders += [node for node in walk(tree) if isinstance(node, ast.ClassDef)]
    for holder in holders:
        stays = [one for one in holder.body if _is_needed(one, named)]
        dropped |= len(stays) < len(holder.body)
        holder.body = stays or [ast.Pass()]
    return dropped


def _is_needed(node: ast.stmt, named: set[str]) -> bool:
    if isinstance(node, Definition):
        acts = bool(node.decorator_list) or any(isinstance(one, ast.Call) for one in loaded(node))
        return acts or node.name in named or node.name.startswith("__")
    return not (isinstance(node, ast.Assign | ast.AnnAssign) and ast.unparse(_target(node)) == SLOTS)


def _target(node: ast.Assign | ast.AnnAssign) -> ast.expr:
    return node.targets[0] if isinstance(node, ast.Assign) else node.target


def _named(tree: ast.Module) -> Iterator[str]:
    for node in walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
